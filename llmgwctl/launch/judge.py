"""Whether a replica that was started without anybody waiting serves by now; and if so, that is recorded."""

from __future__ import annotations

from llmgwctl.launch.ask import Asker, NotProved
from llmgwctl.launch.place import record_ready, world_of
from llmgwctl.launch.stop import Target
from llmgwctl.launch.verify import Proof, verify_transport
from llmgwctl.launch.wait import Served, missing
from llmgwctl.model.errors import LlmgwError
from llmgwctl.model.host import HostFacts, Snapshot
from llmgwctl.model.life import ShardRecord
from llmgwctl.model.replica import ReplicaState
from llmgwctl.transport.base import Transport


async def judge(
    snapshot: Snapshot, state: ReplicaState, targets: tuple[Target, ...], transport: Transport, *, api_key: str = ""
) -> str:
    """What it still lacks, in words; empty: it serves, and its leader's host says so from now on."""
    found = leader_of(snapshot, state)
    leader = next((t for t in targets if t.rank == 0), None)
    if found is None or leader is None:
        return "its leader cannot be asked"
    facts, record = found
    try:
        lacks = await missing(facts.host, record.spec, Asker(transport), api_key)
        served = Served(state.endpoint)
    except NotProved as e:
        lacks, served = "", Served(state.endpoint, proved=False, why=str(e))
    except (LlmgwError, KeyError, TypeError, ValueError) as e:
        return f"its leader cannot be asked: {e}"
    if not lacks:
        await record_ready(transport, leader, served, await transport_of(snapshot, state, targets, transport))
    return lacks


async def transport_of(
    snapshot: Snapshot, state: ReplicaState, targets: tuple[Target, ...], transport: Transport, silent: str = ""
) -> Proof | None:
    """What its log proves now; None for a replica of one host."""
    found = leader_of(snapshot, state)
    if len(state.shards) < 2:
        return None
    world = world_of(found[1].spec) if found else 0
    return await verify_transport(targets, transport, world, silent)


def leader_of(snapshot: Snapshot, state: ReplicaState) -> tuple[HostFacts, ShardRecord] | None:
    """Rank 0 of that very launch, on the host that has it."""
    for facts in snapshot.hosts:
        for record in facts.life.value.shards if facts.life.value else ():
            if (record.replica, record.launch, record.rank) == (state.id, state.launch, 0) and record.directory:
                return facts, record
    return None
