"""Where the inventory is when nobody says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from llmgwctl.model.errors import InventoryError

VARIABLE = "LLMGWCTL_INVENTORY"


def default_path(given: Path | None, environ: Mapping[str, str], cwd: Path, home: Path) -> Path:
    """What -i gives, else $LLMGWCTL_INVENTORY, else ./inventory.toml, else ~/.config/llmgwctl/inventory.toml."""
    if given is not None:
        return given
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]).expanduser()
    here, there = cwd / "inventory.toml", home / ".config" / "llmgwctl" / "inventory.toml"
    found = next((p for p in (here, there) if p.is_file()), None)
    if found is None:
        raise InventoryError(
            f"there is no inventory: not by -i, not by ${VARIABLE}, and neither ./inventory.toml nor {there} is there; "
            "`llmgwctl init 'r1-t[01-18]'` probes hosts and writes one"
        )
    return Path("inventory.toml") if found == here else found
