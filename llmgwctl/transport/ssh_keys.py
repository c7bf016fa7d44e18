"""The keys that we log in with: files, certificates and the agent, each loaded once per run."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from llmgwctl.transport.target import Identities

# sshd gives up after six (MaxAuthTries), and since 9.8 it punishes addresses that offer many wrong ones.
MAX_OFFERS = 5
AGENT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys to offer, in order, and why others are not among them."""

    pairs: tuple[asyncssh.SSHKeyPair, ...]
    hints: tuple[str, ...] = ()

    def for_one_connection(self) -> list[asyncssh.SSHKeyPair]:
        """Copies: asyncssh writes into a pair which signature algorithm the server at hand wants."""
        return [copy.copy(p) for p in self.pairs]


class Keys:
    """Rings by what was asked for; a bcrypt-protected or slow file is read once, not once per host."""

    def __init__(self) -> None:
        self._rings: dict[Identities, KeyRing] = {}
        self._agents: dict[str, asyncssh.SSHAgentClient] = {}
        self._lock = asyncio.Lock()

    async def ring(self, wanted: Identities) -> KeyRing:
        async with self._lock:
            if wanted not in self._rings:
                held = await self._held(wanted.agent)
                self._rings[wanted] = await asyncio.to_thread(_assemble, wanted, held)
            return self._rings[wanted]

    async def _held(self, path: str) -> list[asyncssh.SSHKeyPair]:
        """What the agent holds; an agent that does not answer holds nothing."""
        if not path:
            return []
        agent = self._agents.setdefault(path, asyncssh.SSHAgentClient(path))
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_S):
                return list(await agent.get_keys())
        except (OSError, ValueError):
            return []

    async def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
            await agent.wait_closed()
        self._agents.clear()


def _assemble(wanted: Identities, held: list[asyncssh.SSHKeyPair]) -> KeyRing:
    """Named files first, each by itself or through the agent; then whatever else the agent holds."""
    pairs: list[asyncssh.SSHKeyPair] = []
    hints: list[str] = []
    for file in wanted.files:
        found, hint = _load(file, wanted.certificates)
        if not found:
            found = _in_agent(file, held)
        if not found and hint and (wanted.explicit or "encrypted" in hint):
            hints.append(hint)
        pairs.extend(found)
    if not wanted.only_these:
        pairs.extend(k for k in held if all(k.public_data != p.public_data for p in pairs))
    return KeyRing(tuple(pairs[:MAX_OFFERS]), tuple(hints))


def _load(file: str, certificates: tuple[str, ...]) -> tuple[list[asyncssh.SSHKeyPair], str]:
    """The pairs of a private key file (with FILE-cert.pub, when it is there), or why there are none."""
    present = [c for c in certificates if Path(c).is_file()]
    try:
        return list(asyncssh.load_keypairs([file], certlist=present)), ""
    except OSError as e:
        return [], f"{file} cannot be read: {e.strerror or e}"
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as e:
        if "passphrase" in str(e).lower():
            return [], f"{file} is encrypted and no agent holds it (ssh-add {file})"
        return [], f"{file} is not a private key that can be used: {e}"


def _in_agent(file: str, held: list[asyncssh.SSHKeyPair]) -> list[asyncssh.SSHKeyPair]:
    """The agent's pairs for a file whose public half lies beside it (or is itself that file)."""
    blobs = set()
    for candidate in (f"{file}.pub", file):
        try:
            blobs.add(asyncssh.read_public_key(candidate).public_data)
        except (OSError, asyncssh.KeyImportError, UnicodeDecodeError):
            continue
    return [k for k in held if k.key_public_data in blobs]
