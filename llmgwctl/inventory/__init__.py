"""The inventory: one TOML file -> hosts, pools, fabrics, builds and profiles, or every fault with its line."""

from llmgwctl.inventory.find import default_path
from llmgwctl.inventory.load import Inventory, load, loads
from llmgwctl.inventory.write import dumps

__all__ = ["Inventory", "default_path", "dumps", "load", "loads"]
