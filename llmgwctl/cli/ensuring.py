"""`ensure`: what the profiles ask for is what runs. It starts and returns; the next run judges."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmgwctl.cli import preflight
from llmgwctl.cli.around import as_json, left_out, planned_around, tell_warnings
from llmgwctl.cli.common import Asked, Session, finish, look, note, out, out_json, session
from llmgwctl.cli.job import Job, Wanted, job_of, plan_for
from llmgwctl.cli.life import find, ours, tell_stopped, tell_unseen
from llmgwctl.cli.placing import begun_rows, logs_folder, start_all
from llmgwctl.cli.reading import neighbours
from llmgwctl.cli.restarting import left_alone, with_owners, without
from llmgwctl.cli.secrets import hider
from llmgwctl.launch.claim import ClaimHeld
from llmgwctl.launch.ensure import BACK_OFF, Todo, back_off_of, decide, of_profile, to_judge
from llmgwctl.launch.judge import judge
from llmgwctl.launch.logs import fetch_logs, save_logs
from llmgwctl.launch.place import PlanChanged
from llmgwctl.launch.remote import call
from llmgwctl.launch.state import targets_of
from llmgwctl.launch.stop import Target, stop_replica
from llmgwctl.launch.witness import drop, forget, remember
from llmgwctl.model.errors import ContactLost, LlmgwError, NoPlacement, UsageError
from llmgwctl.model.host import Host, Snapshot
from llmgwctl.model.plan import Plan
from llmgwctl.model.profile import Profile
from llmgwctl.model.replica import ReplicaState
from llmgwctl.probe import PROBES
from llmgwctl.render import life as render
from llmgwctl.render import refusal
from llmgwctl.render.text import clean

FAILED, WRONG, UNKNOWN, NO_PLACEMENT = 1, 2, 3, 4
RACES = 3
LIFE = [p for p in PROBES if p.field in ("system", "life")]


class Overlap(LlmgwError):
    """Somebody else has claimed for the same profile in the same moment: nothing was started."""


@dataclass
class Report:
    """What was found of a profile and done about it. `code`: its part in the exit code."""

    todo: Todo
    actions: list[dict[str, object]] = field(default_factory=list)
    code: int = 0

    def did(
        self, what: str, replica: str = "", why: str = "", *, done: bool = True, code: int = 0, **more: object
    ) -> None:
        self.actions.append({"do": what, "replica": replica, "why": why, "done": done, **more})
        self.code = code if self.code == 0 else min(self.code, code or self.code)

    def document(self) -> dict[str, object]:
        t = self.todo
        told: dict[str, object] = {"name": t.profile, "wanted": t.wanted, **t.counts}
        told |= {"changed": [r.id for r in t.changed], "extra": t.extra, "back_off_s": round(t.wait_s)}
        return {**told, "actions": self.actions}

    @property
    def idle(self) -> bool:
        """Whether nothing was done, or left undone, that cron should mail."""
        return not self.actions and self.code == 0


async def ensure(asked: Asked, names: Sequence[str], *, dry_run: bool, restart_changed: bool) -> None:
    if asked.hosts is not None or asked.pool is not None:
        raise UsageError("ensure counts what runs on all hosts: it takes neither -w nor --pool (name the PROFILEs)")
    async with session(asked) as s:
        profiles = [s.inventory.profile(n) for n in names] or list(s.inventory.profiles.values())
        with alone(s) as free:
            if not free:
                s.note("another ensure of this inventory is at work on this workstation: nothing was done")
                return
            reports = await _all(s, profiles, dry_run=dry_run, restart_changed=restart_changed)
    if asked.json:
        out_json({"schema": "llmgwctl.ensure/v1", "dry_run": dry_run, "profiles": [r.document() for r in reports]})
    elif not asked.quiet or not all(r.idle for r in reports):
        out(render.ensured([r.document() for r in reports], look()))
    codes = {r.code for r in reports}
    finish(next((c for c in (FAILED, WRONG, UNKNOWN, NO_PLACEMENT) if c in codes), 0))


async def _all(s: Session, profiles: list[Profile], *, dry_run: bool, restart_changed: bool) -> list[Report]:
    snapshot = await s.collect()
    tell_unseen(s, snapshot)
    _refuse_the_dark(s, snapshot)
    done = []
    for profile in profiles:
        one = _Work(s, profile, dry_run=dry_run, restart_changed=restart_changed)
        done.append(await one.run(snapshot))
    return done


def _refuse_the_dark(s: Session, snapshot: Snapshot) -> None:
    """Where most hosts cannot be read, the fault is likely here, and whatever is missing may well run."""
    kept_out = s.map(snapshot).verdicts
    counted = [f for f in snapshot.hosts if not any(r.code == "cordoned" for r in kept_out[f.host.name].reasons)]
    dark = sum(not f.life.ok for f in counted)
    if dark * 2 > len(counted):
        raise ContactLost(f"{dark} of {len(counted)} hosts could not be read: nothing was done")


@contextmanager
def alone(s: Session) -> Iterator[bool]:
    """One run at a time for an inventory on this workstation; between workstations the claims decide."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    folder = Path(state) / "llmgwctl"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    where = str(s.inventory.path.resolve()) if s.inventory.path else ""
    name = hashlib.sha256(where.encode()).hexdigest()[:16]
    fd = os.open(folder / f"ensure-{name}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


@dataclass
class _Work:
    """One profile, from what is there to what shall be there."""

    s: Session
    profile: Profile
    dry_run: bool
    restart_changed: bool

    async def run(self, snapshot: Snapshot) -> Report:
        """Judge, decide, act. A lost race means reading again, and then somebody else may have done it all."""
        for attempt in range(1, RACES + 1):
            report = await self._decided(snapshot)
            try:
                await self._act(report, snapshot)
                break
            except (ClaimHeld, PlanChanged, Overlap) as e:
                self.s.note(clean(f"{self.profile.name}: {e}: reading again"))
                if attempt == RACES:
                    report.did("place", why=str(e), done=False)
                snapshot = await self.s.collect()
            except NoPlacement as e:
                report.did("place", why=str(e), done=False, code=NO_PLACEMENT)
                break
            except LlmgwError as e:
                report.did("place", why=str(e), done=False, code=e.exit_code)
                break
        return report

    async def _decided(self, snapshot: Snapshot) -> Report:
        states = of_profile(find(snapshot, None), self.profile)
        found = dict(zip((r.launch for r in states), states, strict=True))
        waiting: list[tuple[ReplicaState, str, int]] = []
        for r in () if self.dry_run else to_judge(states):
            lacks, code = await self._lacks(snapshot, r)
            if lacks:
                waiting.append((r, lacks, code))
            else:
                found[r.launch] = replace(r, state="ready", served=True)
        back_off = back_off_of(snapshot, self.profile.name)
        todo = decide(self.profile, tuple(found.values()), back_off, restart_changed=self.restart_changed)
        report = Report(todo)
        for r, lacks, code in waiting:
            report.did("wait", r.id, f"not ready yet: {lacks}", code=code)
        unknown = [r for r in todo.have if r.state == "unknown"]
        for r in unknown:
            report.did("leave", r.id, r.why, code=UNKNOWN)
        return report

    async def _lacks(self, snapshot: Snapshot, r: ReplicaState) -> tuple[str, int]:
        """What a replica still lacks, in words, and its part in the exit code. That it cannot be asked (no key, a host
        that is gone or full) is its own trouble, and no other profile's."""
        try:
            key = self._job().api_key
            return await judge(snapshot, r, targets_of(snapshot, r), self.s.transport, api_key=key), 0
        except LlmgwError as e:
            return str(e), e.exit_code

    def _job(self) -> Job:
        return job_of(self.s, Wanted(self.profile.name, 1, wait=False))

    async def _act(self, report: Report, snapshot: Snapshot) -> None:
        todo = report.todo
        for r, why in todo.remove:
            await self._remove(report, snapshot, r, why)
        if not self.dry_run:
            await self._keep_book(report, snapshot)
        if todo.wait_s:
            report.did("back off", why=f"starts have failed: the next one in {todo.wait_s:.0f} s", code=FAILED)
        if todo.restart is not None:
            await self._replace(report, snapshot, todo.restart)
        for _ in range(todo.place):
            await self._place(report, ())

    async def _remove(self, report: Report, snapshot: Snapshot, r: ReplicaState, why: str) -> bool:
        if self.dry_run:
            report.did("stop", r.id, why)
            return True
        if not ours(self.s, r, snapshot, named=False):
            report.did("leave", r.id, "it is not ours to stop", done=False, code=FAILED)
            return False
        targets = targets_of(snapshot, r)
        if r.state != "ready":
            await self._save_last_words(r, targets)
        done = await stop_replica(targets, self.s.transport)
        tell_stopped(replace(self.s, asked=replace(self.s.asked, json=True)), r, done)
        gone = all(x.gone for x in done)
        if gone and len(done) == len(r.shards):
            await forget(snapshot, r.id, r.launch, self.s.transport)
        report.did("stop", r.id, why, done=gone, code=0 if gone else FAILED)
        return gone

    async def _save_last_words(self, r: ReplicaState, targets: Sequence[Target]) -> None:
        """Without the secrets of profiles, and where that can be done: no full disk here keeps it from its end."""
        said = hider(self.s.inventory)(await fetch_logs(targets, self.s.transport))
        logs = [log for log in said if log.text.strip()]
        folder = logs_folder(r.id, r.launch)
        try:
            if logs:
                save_logs(logs, folder)
                self.s.note(f"{r.id}: the last words of every rank are in {folder}")
        except OSError as e:
            self.s.note(f"{r.id}: its last words could not be saved in {folder}: {e.strerror or e}")

    async def _replace(self, report: Report, snapshot: Snapshot, r: ReplicaState) -> None:
        """Stopped only where the new one could start, by what would be there without the old one."""
        found = await self.s.collect(extra=with_owners(self.profile))
        ready = await self._planned(report, self._job_of(r.id), without(found, (r,)), spared=left_alone(r.id))
        if ready is None or not await self._remove(report, snapshot, r, "its profile has changed"):
            return
        if self.dry_run:
            self._would_place(report, ready[1])
        else:
            await self._place(report, (r.id,))

    async def _place(self, report: Report, ids: tuple[str, ...]) -> None:
        """One replica on facts of now: read, planned, claimed, looked at again, started."""
        job = self._job_of(*ids)
        snapshot = await self.s.collect(extra=neighbours(self.profile))
        ready = await self._planned(report, job, snapshot)
        if ready is None:
            return
        job, made, checked = ready
        if self.dry_run:
            self._would_place(report, made)
            return
        tell_warnings(job, made, checked)
        bringing = await start_all(replace(job, guard=self._guard), made, snapshot, checked.builds)
        await begun_rows(job, bringing)
        why = f"on {_where(made)}: started, and the next run says whether it serves"
        report.did("place", made.replicas[0].id, why, **as_json(job))

    async def _planned(
        self, report: Report, job: Job, snapshot: Snapshot, *, spared: str = ""
    ) -> tuple[Job, Plan, preflight.Checked] | None:
        """A plan that its hosts can carry (a dry run does not ask them), or the reasons in the report. `spared`: what
        is said then of what runs already."""
        checked: preflight.Checked | None = preflight.Checked({})
        if self.dry_run:
            made = plan_for(job, snapshot)
        else:
            job, made, checked = await planned_around(job, snapshot)
        end = f"; {spared}" if spared else ""
        if checked is None or not made.replicas:
            why = f"{made.why_not} (`llmgwctl plan {self.profile.name}` says why, host by host){end}"
            report.did("place", why=why, done=False, code=NO_PLACEMENT)
            return None
        try:
            checked.refuse()
        except LlmgwError as e:
            for words in left_out(job):
                note(f"! {clean(words)}")
            told = refusal.document(checked.report) | as_json(job)
            report.did("place", made.replicas[0].id, f"{e}{end}", done=False, code=e.exit_code, **told)
            return None
        return job, made, checked

    def _would_place(self, report: Report, made: Plan) -> None:
        report.did("place", made.replicas[0].id, f"on {_where(made)}")

    def _job_of(self, *ids: str) -> Job:
        return replace(self._job(), wanted=Wanted(self.profile.name, 1, wait=False, ids=ids))

    async def _guard(self, launches: set[str]) -> None:
        """After our claim and before our start: whoever claims looks too, so that at least one sees the other."""
        snapshot = await self.s.collect(probes=LIFE, doing="looking for others")
        states = of_profile(find(snapshot, None), self.profile)
        others = [r for r in states if r.launch not in launches and r.state != "failed"]
        if len(others) + len(launches) > max(self.profile.replicas, 1):
            names = ", ".join(f"{r.id} ({r.operator or 'unknown'})" for r in others)
            raise Overlap(f"somebody else is at it: {names}")

    async def _keep_book(self, report: Report, snapshot: Snapshot) -> None:
        """Failed starts are counted on hosts, and forgotten once a replica serves; what is whole is remembered."""
        name, transport = BACK_OFF + self.profile.name, self.s.transport
        before = back_off_of(snapshot, self.profile.name)
        answering = [f.host for f in snapshot.hosts if f.life.ok]
        if report.todo.died_at_start:
            told = {"failures": before.failures + report.todo.died_at_start}
            await _put(self.s, _book(answering, self.profile), name, json.dumps(told).encode())
            report.code = FAILED
        elif before.failures and any(r.state == "ready" for r in report.todo.have):
            await drop(snapshot, name, transport)
        whole = [r for r in report.todo.have if r.state in ("ready", "starting") and not r.stuck]
        specs = {x.launch: x.spec for f in snapshot.hosts if f.life.value for x in f.life.value.shards if x.directory}
        await asyncio.gather(*(remember(specs[r.launch], answering, transport) for r in whole if r.launch in specs))


def _where(made: Plan) -> str:
    return ", ".join(x.host for x in made.replicas[0].shards)


def _book(answering: Sequence[Host], profile: Profile) -> list[Host]:
    """Three hosts that keep the count, so that one that is switched off does not lose it."""
    return sorted(answering, key=lambda h: (h.pool != profile.pool, h.order, h.name))[:3]


async def _put(s: Session, hosts: Sequence[Host], name: str, data: bytes) -> None:
    done = await asyncio.gather(
        *(call(s.transport, h, "notes.sh", "put", name, stdin=data) for h in hosts), return_exceptions=True
    )
    for host, result in zip(hosts, done, strict=True):
        if isinstance(result, LlmgwError):
            s.note(clean(f"{host.name}: the back-off could not be noted: {result}"))
        elif isinstance(result, BaseException):
            raise result
