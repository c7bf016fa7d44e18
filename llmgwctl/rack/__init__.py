"""The simulated rack: real SSH servers on loopback, beside the real thing and in its shape."""

from llmgwctl.rack.faults import FAULTS, Fault
from llmgwctl.rack.fleet import RackSpec, hgx, mixed, nvl72
from llmgwctl.rack.loop import Event, main_loop
from llmgwctl.rack.serve import PORT, Rack, serve

__all__ = ["FAULTS", "PORT", "Event", "Fault", "Rack", "RackSpec", "hgx", "main_loop", "mixed", "nvl72", "serve"]
