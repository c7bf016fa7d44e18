"""`python -m llmgwctl`: the command line without an installed script."""

from __future__ import annotations

import sys

from llmgwctl.cli import program

if __name__ == "__main__":
    sys.exit(program())
