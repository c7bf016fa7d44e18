"""The pages in a real browser: seen, heard, filtered, printed, without motion, without a script, without a network."""

from __future__ import annotations

import pytest
from pages import seven_faults

TRAYS = sorted(seven_faults())
STYLE = """(e) => { const s = getComputedStyle(e), b = getComputedStyle(e, "::before");
  const clear = (c) => c === "rgba(0, 0, 0, 0)";
  return { colour: s.borderTopColor, glow: s.boxShadow, moves: s.animationName,
    shape: [s.borderTopStyle, b.content, clear(b.backgroundColor), b.backgroundImage.slice(0, 6), b.borderTopWidth,
            b.borderTopLeftRadius].join(" ") }; }"""
SERIOUS = ("serious", "critical")


def chip(page, host: str, name: str):
    """The picture of a host that a screen reader gives this name: that of one GPU, or of all where they are alike."""
    return page.locator(f"[id='h-{host}']").get_by_role("img", name=name, exact=True)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("r1-t01", "all 4 GPUs joined, with a shard"),
        ("r1-t04", "all 4 GPUs joined"),
        ("r1-t03", "GPU 1 not joined"),
        ("r1-t07", "GPU 3 joined, bandwidth degraded"),
        ("r1-t09", "GPU 0 joined, not healthy"),
        ("r1-t12", "a GPU not readable"),
        ("r1-t17", "GPU 2 unknown whether joined"),
        ("h100-001", "all 8 GPUs present, its NVLink stays in the machine"),
    ],
)
def test_every_kind_of_gpu_is_seen_and_heard(opened, host, name):
    """It has a name for a screen reader, it is on the page, and it has a size."""
    found = chip(opened(), host, name)
    assert found.count() == 1
    box = found.bounding_box()
    assert box["width"] > 20
    assert box["height"] > 15


def test_every_gpu_of_the_rack_is_there(opened):
    """Seventeen trays that answered have four chips each; the two of the other partition stand in their own rack."""
    page = opened()
    counts = page.eval_on_selector_all("[id^='h-r1-'] > .g", "g => g.map(e => e.querySelectorAll('i').length)")
    assert sorted(counts) == [0] + [4] * 17


def test_each_state_looks_like_no_other_even_without_colour(opened):
    """Seven shapes, so that nobody needs the colour; joined glows, what is not pulses."""
    page = opened(reduced_motion="no-preference")
    looks = {c: page.locator(f".legend .g i.{c}").first.evaluate(STYLE) for c in "jdunxqo"}
    assert len({look["shape"] for look in looks.values()}) == 7
    assert len({looks[c]["colour"] for c in "jdnqo"}) == 5
    assert looks["j"]["glow"] != "none"
    assert looks["o"]["glow"] == "none"
    assert {c for c in looks if looks[c]["moves"] == "beat"} == {"n", "d"}


def test_the_reasons_are_readable(opened):
    page = opened()
    for host, words in (
        ("r1-t03", "GPU 1 has not joined the NVLink fabric: State In Progress"),
        ("r1-t05", "IMEX is down (unit nvidia-imex is failed)"),
        ("r1-t10", "missing: not reachable: refused"),
        ("r1-t16", "no IMEX channel"),
    ):
        said = page.locator(f"[id='h-{host}']").get_by_text(words)
        assert said.is_visible()
        assert said.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 11


def shown(page) -> list[str]:
    ids = page.eval_on_selector_all("li.t", "all => all.filter(e => e.offsetParent !== null).map(e => e.id)")
    return sorted(ids)


def test_the_filter(opened):
    """All words must be there, in the name, the rack, the state or the reason; empty again shows everything."""
    page = opened()
    everything = shown(page)
    for asked, wanted in (
        ("imex down", ["h-r1-t05"]),
        ("R1-T07", ["h-r1-t07"]),
        ("unknown whether", ["h-r1-t17"]),
        ("deepseek t02", ["h-r1-t02"]),
        ("r1, partition", ["h-r1-t14", "h-r1-t15"]),
        ("no-such-thing", []),
    ):
        page.fill("#q", asked)
        page.wait_for_timeout(400)
        assert page.locator("#found").inner_text().startswith(f"{len(wanted)} of")
        assert shown(page) == wanted
    page.fill("#q", "")
    page.wait_for_timeout(400)
    assert shown(page) == everything


@pytest.mark.parametrize("script", [True, False])
def test_only_with_a_problem_needs_no_script(opened, script):
    page = opened(java_script_enabled=script)
    page.locator("#only").check()
    left = shown(page) if script else None
    assert page.locator("[id='h-r1-t05']").is_visible()
    assert page.locator("[id='u-h100-003']").is_visible()
    assert not page.locator("[id='h-r1-t04']").is_visible()
    assert not page.locator("[id='h-h100-001']").is_visible()
    assert left is None or "h-r1-t06" not in left


def test_without_a_script_everything_is_there(opened):
    page = opened(java_script_enabled=False)
    for name in TRAYS:
        assert page.locator(f"[id='h-{name}']").is_visible()
    assert not page.locator("#q").is_visible()
    assert page.get_by_text("4 s before this page was made").is_visible()


def test_the_age_is_always_on_the_screen(opened):
    """Also at the end of the page, on a wall and on a phone."""
    for width, height in ((1440, 900), (360, 740)):
        page = opened(width=width, height=height)
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(200)
        box = page.locator("#age").bounding_box()
        assert 0 <= box["y"] <= height - box["height"]
        assert "ago" in page.locator("#ago").inner_text()


RUNNING = "() => document.getAnimations().filter(a => a.playState === 'running').length"


def test_reduced_motion_stops_every_animation(opened):
    assert opened(reduced_motion="no-preference").evaluate(RUNNING) > 1
    for which in ("racks", "r1-t01"):
        page = opened(which, reduced_motion="reduce")
        assert page.evaluate(RUNNING) == 0
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert page.evaluate(RUNNING) == 0


@pytest.mark.parametrize("which", ["racks", "r1-t01", "r1-t10", "h100-001", "doctor"])
def test_nothing_leaves_the_page_and_nothing_complains(opened, pages, which):
    """From disk, offline, under its own policy: the one request is the file itself."""
    page = opened(which, offline=True)
    page.wait_for_timeout(200)
    assert page.requests == [pages[which].as_uri()]
    assert page.complaints == []


def test_the_policy_stops_what_is_not_ours(opened):
    """An element that got in all the same could run nothing and load nothing."""
    page = opened()
    page.evaluate("""() => { const s = document.createElement("script"); s.textContent = "window.broke = 1";
      document.body.append(s); const i = document.createElement("img"); i.src = "http://127.0.0.1:9/x.png";
      document.body.append(i); const d = document.createElement("div"); d.setAttribute("onclick", "window.broke = 2");
      document.body.append(d); d.click(); }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.broke") is None
    assert any("Content Security Policy" in c for c in page.complaints)


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("which", ["racks", "r1-t01", "r1-t10", "doctor"])
def test_axe_finds_nothing_serious(opened, axe, which, width, scheme):
    """Names, roles, contrast, focus: also of what is folded, once it is open."""
    page = opened(which, width=width, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.eval_on_selector_all("details", "all => all.slice(0, 3).forEach(d => { d.open = true; })")
    page.add_style_tag(content=".rk{content-visibility:visible!important}")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    told = [(v["id"], v["impact"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found]
    assert [t for t in told if t[1] in SERIOUS] == []


def test_print_gives_every_tray(opened):
    """Also those that a filter has hidden on the screen."""
    page = opened()
    page.fill("#q", "imex down")
    page.locator("#found", has_text="1 of").wait_for()
    page.emulate_media(media="print")
    for name in TRAYS:
        assert page.locator(f"[id='h-{name}']").is_visible(), name
    assert not page.locator("#q").is_visible()
    assert page.evaluate(RUNNING) == 0
    assert page.pdf().startswith(b"%PDF")


def test_by_keyboard(opened):
    """The first stop leads over the head; each host's details open with a key."""
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    summary = page.locator("[id='h-r1-t05'] summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("[id='h-r1-t05'] .hd").is_visible()
    assert page.locator("[id='h-r1-t05'] .hd").get_by_text("GPU-r1-t05-3").count() == 1


@pytest.mark.parametrize("width", [360, 768, 1440, 3840])
@pytest.mark.parametrize("which", ["racks", "r1-t01", "doctor"])
def test_no_width_needs_scrolling_sideways(opened, which, width):
    page = opened(which, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_links_lead_to_the_tray(opened):
    """What keeps a host out leads to where it stands."""
    page = opened(reduced_motion="reduce")
    page.locator(".tr").get_by_role("link", name="r1-t16").click()
    page.wait_for_timeout(300)
    box = page.locator("[id='h-r1-t16']").bounding_box()
    assert 0 < box["y"] < 1000
