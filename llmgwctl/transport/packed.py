"""An answer that the host has packed, because the way is slow: unpacked up to a limit, and as far as it is whole."""

from __future__ import annotations

import zlib

_GZIP = 31  # window bits: with gzip's header and checksum
_PIECE = 64 * 1024


def unpack(data: bytes, nonce: str, max_bytes: int) -> bytes | None:
    """What the framer said. As it is where nothing is packed; None where it would be larger than max_bytes.

    A few bytes can claim to be gigabytes: they are never made. Every account of the host can read the nonce in our
    arguments and have it printed in a section: after the beginning of an answer such a line is text like any other.
    """
    before, packed, stream = data.partition(f"LLMGWCTL-GZIP {nonce}\n".encode())
    if not packed or f"LLMGWCTL-BEGIN {nonce}\n".encode() in before:
        return data
    unpacker, found = zlib.decompressobj(_GZIP), bytearray()
    for at in range(0, len(stream), _PIECE):
        try:
            found += unpacker.decompress(stream[at : at + _PIECE], max_bytes + 1 - len(found))
        except zlib.error:
            break  # broken from here on, and read as an answer that breaks off
        if len(found) > max_bytes:
            return None
    return bytes(found)
