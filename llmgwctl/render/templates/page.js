"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const read = $("read"), ago = $("ago"), q = $("q"), only = $("only"), found = $("found");
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const tick = () => {
    const s = Math.max(0, Math.round((Date.now() - Date.parse(read.dateTime)) / 1000));
    const [n, u] = units.find(([n]) => s >= 2 * n) || [1, "s"];
    ago.textContent = `${Math.floor(s / n)} ${u} ago`;
    $("age").classList.toggle("old", s > 900);
  };
  if (read) { tick(); setInterval(tick, 5000); }
  if (!q) return;
  $("fq").hidden = false;
  let trays = null;
  const index = () => trays ||= [...document.querySelectorAll("li.t")].map((e) => {
    const rack = e.closest(".rk"), chips = [...e.querySelectorAll(":scope > .g > i")].map((i) => i.getAttribute("aria-label"));
    const own = [...e.children].filter((c) => c.localName !== "details").map((c) => c.textContent);
    const words = [...own, ...chips, rack ? rack.querySelector("h2").textContent : "", rack ? rack.querySelector(".id").textContent : ""];
    return { e, rack, words: words.join(" ").toLowerCase() };
  });
  const apply = () => {
    const wanted = q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rackHas = new Map();
    let shown = 0;
    for (const t of index()) {
      const hit = wanted.every((w) => t.words.includes(w));
      if (t.e.hidden === hit) t.e.hidden = !hit;
      if (hit) shown++;
      if (t.rack) rackHas.set(t.rack, rackHas.get(t.rack) || hit);
    }
    for (const [rack, hit] of rackHas) rack.hidden = !hit;
    found.value = wanted.length ? `${shown.toLocaleString("en")} of ${trays.length.toLocaleString("en")} shown` : "";
  };
  let due = 0;
  q.addEventListener("input", () => { clearTimeout(due); due = setTimeout(apply, 120); });
  if (q.value) apply();
})();
