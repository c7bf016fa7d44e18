"""How a .sh file of ours reaches a host: one trivial line for the login shell, and the script on standard input."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from functools import cache

from llmgwctl.remote import script_text

# `head -c` takes exactly the script, so that what follows it is the script's own standard input.
_BOOT = 'n=$1; shift; eval "$(head -c "$n")"'
KILL_AFTER_S = 5


@cache
def script_bytes(name: str) -> bytes:
    """A file of llmgwctl/remote, as it is sent."""
    return script_text(name).encode()


def boot(script: bytes, args: Sequence[str], limit_s: float) -> str:
    """The command line: whatever the login shell is, it sees plain words in single quotes and nothing secret.

    The remote `timeout` ends the command when we cannot: closing a channel leaves its process running.
    """
    limit = str(max(1, math.ceil(limit_s)))
    words = ["timeout", "-k", str(KILL_AFTER_S), limit, "sh", "-c", _BOOT, "llmgwctl", str(len(script)), *args]
    return "exec " + shlex.join(words)
