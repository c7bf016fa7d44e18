"""llmgwctl: run LLM inference on NVIDIA NVL72 racks and HGX hosts, from one workstation, over SSH."""

__version__ = "0.1.0"
