"""A real browser: Debian's chromium, driven by playwright. LLMGW_E2E=1 switches these tests on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# The network flags keep the browser from looking for its maker's servers; the sandbox needs what root has not.
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on = os.environ.get("LLMGW_E2E") == "1"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.xdist_group("browser"))
            if not on and not item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="LLMGW_E2E=1 starts a browser and runs these"))


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """For one module: while playwright is there its event loop runs, and no other test could have one of its own."""
    from playwright.sync_api import sync_playwright

    assert Path(CHROMIUM).exists(), f"LLMGW_E2E=1, but {CHROMIUM} is not there: apt-get install chromium"
    with sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core out of npm, as its lock file says."""
    folder = tmp_path_factory.mktemp("axe")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=300)
    return (folder / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of a fleet with every kind of fault, as files."""
    from pages import fleet

    from llmgwctl.doctor import diagnose
    from llmgwctl.fabric import fabric_map
    from llmgwctl.launch.state import replicas
    from llmgwctl.render.html import node_page, rack_page
    from llmgwctl.render.html_doctor import doctor_page

    folder, snap = tmp_path_factory.mktemp("pages"), fleet()
    fmap, running = fabric_map(snap), replicas(snap)
    texts = {"racks": rack_page(fmap, snap, running, made_at=snap.taken_at + 4)}
    for host in ("r1-t01", "r1-t10", "h100-001"):
        texts[host] = node_page(host, fmap, snap, running, made_at=snap.taken_at + 4)
    texts["doctor"] = doctor_page(diagnose(snap, fmap), snap, made_at=snap.taken_at + 4)
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture
def opened(browser, pages):
    """opened(page, **how): a page in a context of its own, with what it asked for and what it complained of."""
    contexts = []

    def open_page(which: str | Path = "racks", width: int = 1440, height: int = 1000, **how):
        path = pages[which] if isinstance(which, str) else which
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        contexts.append(context)
        page = context.new_page()
        page.requests, page.complaints = [], []
        page.on("request", lambda r: page.requests.append(r.url))
        page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: page.complaints.append(str(e)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
