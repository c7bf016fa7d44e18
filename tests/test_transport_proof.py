"""The transport by NCCL's own lines: logs written by hand in the shape that the field's have; ids are invented."""

from __future__ import annotations

import pytest

from llmgwctl.launch.verify import Proof, proof, short_of, silence, weaker


def of_rank(rank: int, *lines: str) -> str:
    return "\n".join(f"tray{rank // 4}:811:{900 + rank} [{rank % 4}] NCCL INFO {line}" for line in lines)


def ranks(world: int, *lines: str) -> str:
    return "\n".join(
        of_rank(r, *(line.format(r=r, n=(r + 1) % world, world=world) for line in lines)) for r in range(world)
    )


BUS = "MNNVL busId 0x8000000 fabric UUID 47ac3e0b.1f0c81aa cliqueId 0x7ffe state 3 healthMask 0x0"
CLIQUE = "MNNVL 1 cliqueId 7ffe cliqueSize {world} cliqueRank {r}"
CLIQUE_230 = "MNNVL 1 cliqueId 7ffe cliqueSize {world} cliqueRank {r} nvlDomainSize {world}"
COMM = "comm 0x55d0 rank {r} nRanks {world} nNodes 1 localRanks {world} localRank {r} MNNVL 1"
OVER = "Channel 00/0 : {r}[0] -> {n}[0] via P2P/MNNVL"
USING_IB = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
USING_ROCE = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"
GDR = "Channel 00/0 : {r}[0] -> {n}[0] [send] via NET/IB/0/GDRDMA"
NO_GDR = "Channel 00/0 : {r}[0] -> {n}[0] [send] via NET/IB/0"
SOCKET = "Channel 00/0 : {r}[0] -> {n}[0] [send] via NET/Socket/0"

LOGS = {
    "a whole domain": (ranks(8, BUS, CLIQUE, COMM, OVER), 8, "NVLink (MNNVL, clique of 8 of 8 ranks)"),
    "2.30, with what the domain could hold": (ranks(8, CLIQUE_230), 8, "NVLink (MNNVL, clique of 8 of 8 ranks)"),
    "channels connect later": (ranks(8, BUS, CLIQUE, "Using network IB"), 8, "NVLink (MNNVL, clique of 8 of 8 ranks)"),
    "a clique of half": (ranks(4, BUS, CLIQUE), 8, "NVLink (MNNVL, clique of 4 of 8 ranks)"),
    "channels alone": (ranks(8, OVER), 8, "NVLink (MNNVL)"),
    "InfiniBand": (ranks(8, USING_IB, "Using network IB", GDR), 8, "InfiniBand (GPUDirect)"),
    "InfiniBand through the host": (ranks(8, USING_IB, NO_GDR), 8, "InfiniBand (without GPUDirect)"),
    "InfiniBand, mixed": (ranks(2, GDR) + "\n" + ranks(2, NO_GDR), 4, "InfiniBand (GPUDirect on some channels only)"),
    "RoCE": (ranks(8, USING_ROCE, "Using network IB", GDR), 8, "RoCE (GPUDirect)"),
    "lazy InfiniBand": (
        ranks(8, "GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "Using network IB"),
        8,
        "InfiniBand (GPUDirect)",
    ),
    "sockets": (ranks(8, "Using network Socket", SOCKET), 8, "TCP"),
    # MNNVL was asked for, is there (the busId line says state 3), and is silently not used.
    "silent: MNNVL to InfiniBand": (
        ranks(8, "NCCL_MNNVL_ENABLE set by environment to 1.", BUS, USING_IB, "Using network IB", GDR),
        8,
        "InfiniBand (GPUDirect)",
    ),
    "silent: InfiniBand to sockets": (
        ranks(8, "NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket"),
        8,
        "TCP",
    ),
    "one rank fell back": (ranks(7, GDR) + "\n" + of_rank(7, SOCKET.format(r=7, n=0)), 8, "TCP"),
    "two cliques joined by a network": (
        ranks(8, CLIQUE, "Using network IB").replace("cliqueSize 8", "cliqueSize 4")
        + "\n"
        + ranks(8, "comm 0x55d0 rank {r} nRanks {world} nNodes 2 localRanks 4 localRank 0 MNNVL 1"),
        8,
        "InfiniBand (without GPUDirect)",
    ),
    "ordinary peer to peer inside a host": (
        ranks(4, "Channel 00/0 : {r}[0] -> {n}[0] via P2P/CUMEM"),
        4,
        "not proved: its log has no NCCL line that names it",
    ),
    "only what is there": (ranks(8, BUS), 8, "not proved: its log has no NCCL line that names it"),
    "nothing": ("INFO 12-01 06:00:00 [api_server.py:1] ready", 8, "not proved: its log has no NCCL line that names it"),
    "ranks that disagree": (
        of_rank(0, "Using network IB") + "\n" + of_rank(1, "Using network Socket"),
        2,
        "not proved: ranks name different networks",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_what_is_said_of_a_log(case):
    text, world, want = LOGS[case]
    assert proof(text.split("\n"), world).text == want


@pytest.mark.parametrize(
    ("tier", "kind", "less"),
    [
        ("nvlink", "nvlink", False), ("nvlink", "ib", True), ("nvlink", "tcp", True), ("nvlink", "not proved", False),
        ("scale-out", "ib", False), ("scale-out", "tcp", True), ("scale-out", "nvlink", False),
        ("tcp", "tcp", False), ("single-host", "tcp", False),
    ],
)  # fmt: skip
def test_less_than_planned_is_told_from_what_nobody_knows(tier, kind, less):
    """Not proved is no proof of less; but whoever requires the transport does not take it either."""
    found = Proof(kind, f"the words for {kind}")
    assert weaker(tier, kind) is less
    assert bool(short_of(tier, found)) is (less or (kind == "not proved" and tier != "single-host"))


@pytest.mark.parametrize(
    ("env", "nccl", "word"),
    [
        ((), True, ""),
        ((("NCCL_DEBUG", "info"),), True, ""),
        ((("NCCL_DEBUG", "TRACE"),), True, ""),
        ((("NCCL_DEBUG", "WARN"),), True, "NCCL_DEBUG=WARN"),
        ((("NCCL_DEBUG_SUBSYS", "GRAPH"),), True, "NCCL_DEBUG_SUBSYS"),
        ((("NCCL_DEBUG_SUBSYS", "ALL"),), True, ""),
        ((("NCCL_DEBUG_FILE", "/tmp/x"),), True, "NCCL_DEBUG_FILE"),
        ((), False, "does not use NCCL"),
    ],
)
def test_why_a_log_is_silent_is_known_before(env, nccl, word):
    """And then it is what "not proved" says."""
    why = silence(env, nccl)
    assert (word in why) if word else why == ""
    if why:
        assert proof([], 8, why).text == f"not proved: {why}"
