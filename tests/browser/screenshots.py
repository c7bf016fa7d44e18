"""Makes the pictures of the pages in docs/img: python tests/browser/screenshots.py (needs chromium and fonts-inter)."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from conftest import ARGS, CHROMIUM  # noqa: E402
from facts import rack, snapshot  # noqa: E402
from pages import outside, seven_faults  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from llmgwctl.fabric import fabric_map  # noqa: E402
from llmgwctl.launch.state import replicas  # noqa: E402
from llmgwctl.render.html import node_page, rack_page  # noqa: E402

OUT = HERE.parents[1] / "docs" / "img"
NOW = "2026-05-28T20:26:52Z"
# name -> (page, width, height, scheme)
SHOTS = {
    "rack-dark": ("one", 1200, 900, "dark"),
    "rack-light": ("one", 1200, 780, "light"),
    "wall": ("wall", 1440, 660, "dark"),
    "phone": ("one", 360, 780, "dark"),
    "node": ("node", 1200, 1000, "light"),
}


def pages() -> dict[str, str]:
    one = snapshot(seven_faults(), outside())
    many = [rack(18, f"r{i}", f"5e1fab1e-0000-4000-8000-0000000000{i:02x}", net=i) for i in (2, 3, 4)]
    wall = snapshot(seven_faults(), *many, outside())
    made = {
        "one": rack_page(fabric_map(one), one, replicas(one)),
        "wall": rack_page(fabric_map(wall), wall, replicas(wall)),
    }
    made["node"] = node_page("r1-t07", fabric_map(one), one, replicas(one))
    return made


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as p:
        for name, text in pages().items():
            (Path(folder) / f"{name}.html").write_text(text, encoding="utf-8")
        browser = p.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGS)
        for name in SHOTS:
            _shot(browser, Path(folder), name)
        browser.close()


def _shot(browser: Browser, folder: Path, name: str) -> None:
    page_name, width, height, scheme = SHOTS[name]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.clock.set_fixed_time(NOW)
    page.goto((folder / f"{page_name}.html").as_uri())
    page.wait_for_timeout(1500)
    page.screenshot(path=OUT / f"{name}.png", animations="allow")
    context.close()


if __name__ == "__main__":
    main()
