"""The inventory: one TOML file -> hosts, pools, fabrics, builds and profiles, or every fault with its line."""

from llmgwctl.inventory.find import default_path
from llmgwctl.inventory.load import Inventory, load, loads, of_hosts
from llmgwctl.inventory.ranges import expand
from llmgwctl.inventory.suggest import nearest
from llmgwctl.inventory.write import dumps
from llmgwctl.model.names import is_name

__all__ = ["Inventory", "default_path", "dumps", "expand", "is_name", "load", "loads", "nearest", "of_hosts"]
