"""The floors of the house: imports point down, or sideways within a package."""

from __future__ import annotations

import ast
from pathlib import Path

import llmgwctl

ROOT = Path(llmgwctl.__file__).parent
FLOORS = {
    "model": 0,
    "fabric": 1, "probe": 1, "placement": 1, "engines": 1, "doctor": 1, "render": 1, "watch": 1,
    "inventory": 2, "transport": 2, "remote": 2, "collect": 2, "launch": 2, "rack": 2, "publish": 2,
    "cli": 3, "__main__": 4,
}  # fmt: skip
SIDEWAYS = {"fabric", "transport", "remote"}  # the seam, and the shell texts, which import nothing
IMPURE = {"asyncssh", "socket", "subprocess", "httpx", "requests"}
SSH = {"transport", "rack"}


def modules():
    return sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path):
    """(line, dotted name) of each import, also of those inside functions; relative ones are not used here."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides its floor"
            yield node.lineno, node.module or ""
            # `from llmgwctl import fabric` names a part too
            yield from ((node.lineno, f"{node.module}.{a.name}") for a in node.names if node.module == "llmgwctl")


def test_every_part_has_a_floor():
    """A new part of the house says on which floor it stands."""
    assert {part_of(p) for p in modules()} <= set(FLOORS)


def test_imports_point_down():
    """Never up, and sideways only within a package or to fabric, the seam and the shell texts."""
    wrong = []
    for path in modules():
        here = part_of(path)
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != "llmgwctl" or len(parts) == 1 or parts[1] in (here, "__version__"):
                continue
            there = parts[1]
            down = FLOORS[there] < FLOORS[here]
            beside = FLOORS[there] == FLOORS[here] and there in SIDEWAYS
            if not down and not beside:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_deciding_is_pure():
    """Floors 0 and 1 open no socket, start no process and know no SSH."""
    texts = {ROOT / "engines" / name for name in ("sim_server.py", "all_reduce_run.py")}  # run on hosts, text here
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules()
        if FLOORS.get(part_of(path), 3) <= 1 and path not in texts
        for line, name in imports(path)
        if name.split(".")[0] in IMPURE
    ]
    assert wrong == []


def test_one_module_family_knows_ssh():
    """asyncssh is imported by transport/ and by the simulated rack, and by nothing else."""
    users = {part_of(p) for p in modules() for _, name in imports(p) if name.split(".")[0] == "asyncssh"}
    assert users <= SSH


def test_files_stay_walkable():
    """No Python file of the package has more than 450 lines: it would be two ideas."""
    long = {str(p.relative_to(ROOT)): n for p in modules() if (n := len(p.read_text().splitlines())) > 450}
    assert long == {}
