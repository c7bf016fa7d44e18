"""Where the inventory is when nobody says so."""

from __future__ import annotations

import os
import stat
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
    if found == here:
        _ours(here)
        return Path("inventory.toml")
    return found


def _ours(path: Path) -> None:
    """A folder that one happens to be in may be anybody's, and an inventory says what is started where."""
    info = path.stat()
    if info.st_uid not in (os.getuid(), 0) or info.st_mode & stat.S_IWOTH:
        whose = "can be written by every account" if info.st_mode & stat.S_IWOTH else "belongs to another account"
        raise InventoryError(f"./inventory.toml {whose}: it is taken only when it is named, `-i inventory.toml`")
