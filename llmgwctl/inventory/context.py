"""What the parts of an inventory are checked against: each other's names, and where faults are noted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from llmgwctl.inventory.faults import Faults
from llmgwctl.inventory.ranges import BadRange, expand
from llmgwctl.inventory.suggest import nearest
from llmgwctl.model.fact import fact
from llmgwctl.model.product import PRODUCTS, product_of

At = tuple[str | int, ...]


@fact
class Context:
    """`beside` is the folder of the inventory: relative paths of this workstation begin there."""

    faults: Faults
    beside: Path
    hosts: Collection[str] = ()
    pools: Collection[str] = ()
    engines: Collection[str] = ()

    def local_path(self, text: str | None) -> str | None:
        """A path on this workstation: ~ expanded, a relative one taken from the folder of the inventory."""
        if text is None:
            return None
        path = Path(text).expanduser()
        return str(path if path.is_absolute() else self.beside / path)

    def product(self, token: str | None, at: At) -> None:
        """A product that is written otherwise than nvidia-smi's own token would never be found."""
        known = product_of(token.upper()) if token else None
        if known is not None and token not in {p.token for p in PRODUCTS}:
            self.faults.add(at, f"{token!r} is no product token: did you mean {known.token}?")

    def known_engine(self, name: str, at: At) -> bool:
        if name in self.engines:
            return True
        self.faults.add(at, f"unknown engine {name!r}; {nearest(name, self.engines, 'known engine')}")
        return False

    def known_pool(self, pool: str, at: At) -> bool:
        if pool in self.pools:
            return True
        self.faults.add(at, f"no host is in pool {pool!r}; {nearest(pool, self.pools, 'known pool')}")
        return False

    def known_hosts(self, text: str, at: At) -> list[str]:
        """The hosts of a range, which must all be in the inventory; those that are not are noted once."""
        try:
            names = expand(text)
        except BadRange as e:
            self.faults.add(at, str(e))
            return []
        strangers = [n for n in names if n not in self.hosts]
        if strangers:
            more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
            near = nearest(strangers[0], self.hosts, "known host")
            self.faults.add(at, f"{strangers[0][:80]!r}{more} not in the inventory; {near}")
        return [n for n in names if n in self.hosts]
