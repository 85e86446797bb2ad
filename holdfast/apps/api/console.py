"""Data source of the web console: the same fleets and jobs that the CLI shows."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from holdfast.adapters.local.layout import default_home
from holdfast.api.console_source import (
    ConsoleAction,
    Json,
    NotAccepted,
    RepairRequest,
    Tables,
    UnknownObject,
)
from holdfast.apps.api.console_rows import (
    fleet_row,
    goodput_story,
    incident_row,
    job_row,
    node_key,
    node_row,
    node_story,
)
from holdfast.apps.cli.where import TargetPlatform, Where, open_fleets, open_jobs
from holdfast.apps.views.goodput import goodput
from holdfast.apps.views.jobs import JobDetails, Jobs, JobStatus
from holdfast.apps.views.nodes import (
    Fleet,
    NodeStatus,
    NotFound,
    check_waits,
    replacement_count,
)
from holdfast.apps.views.run_jobs import job_status
from holdfast.apps.views.runs import open_runs
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Urgency
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request, Verb
from holdfast.ports.clock import Clock

T = TypeVar("T")

SHORTEST_PAUSE_S: Final = 0.2
"""Polling interval: a fault must be visible within a second."""

ENDED_S: Final = 30.0
"""Cache lifetime of ended runs: they change only if a person removes one."""

INCIDENTS: Final = 1000
"""Maximum number of incidents shown, newest first; all are sent to every page that opens."""

_VERBS: Final = {
    ConsoleAction.REBOOT: Verb.REBOOT,
    ConsoleAction.REPLACE: Verb.REPLACE,
    ConsoleAction.DEEP_CHECK: Verb.DEEP_CHECK,
    ConsoleAction.RELEASE: Verb.RELEASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFleet:
    """Snapshot of a fleet."""

    row: Json
    is_active: bool
    nodes: Sequence[NodeStatus]
    incidents: Sequence[Incident]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Snapshot of all fleets and jobs."""

    fleets: Sequence[SeenFleet] = ()
    jobs: Sequence[JobStatus] = ()
    no_jobs: str = ""
    """Why jobs could not be read, or how to start one."""


@dataclass
class _Kept:
    """Ended runs, which no longer change."""

    seen: Seen = field(default_factory=Seen)
    active: frozenset[str] = frozenset()
    """Runs that were active when these were read."""

    read_at: float = float("-inf")


class ConsoleSource:
    """A ``ConsoleBackend``: the runs on this machine, or a cluster.

    All reads use one dedicated thread, because a SQLite connection belongs to its thread.
    """

    def __init__(self, where: Where, clock: Clock) -> None:
        self._where = where
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console")
        self._opened = ExitStack()
        self._fleet: Fleet | None = None
        self._jobs: Jobs | None = None
        self._kept = _Kept()
        self._seen = Seen()
        self._seen_at = float("-inf")

    def close(self) -> None:
        """Close all open resources."""
        self._thread.submit(self._opened.close).result()
        self._thread.shutdown()

    @property
    def pause_s(self) -> float:
        """See ``ConsoleBackend.pause_s``."""
        own = self._fleet.poll_interval_s if self._fleet is not None else 0.0
        return max(SHORTEST_PAUSE_S, own)

    def look(self) -> Tables:
        """See ``ConsoleBackend.look``."""
        return self._in_thread(lambda: tables_of(self._read()))

    def node(self, fleet: str, name: str) -> Json:
        """See ``ConsoleBackend.node``."""
        return self._in_thread(lambda: self._node(fleet, name))

    def job(self, name: str) -> Json:
        """See ``ConsoleBackend.job``."""
        return self._in_thread(lambda: self._job(name))

    def goodput(self) -> Json:
        """See ``ConsoleBackend.goodput``."""
        jobs = self._in_thread(self._fresh).jobs
        now = self._clock.now()
        return goodput_story([one for one in (goodput(job, now) for job in jobs) if one])

    def submit(self, repair: RepairRequest, person: str) -> str:
        """See ``ConsoleBackend.submit``."""
        return self._in_thread(lambda: self._ask(repair, person))

    def _in_thread(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result()

    def _fresh(self) -> Seen:
        """Cached snapshot if fresh, otherwise a new one."""
        is_old = time.monotonic() - self._seen_at > self.pause_s
        return self._read() if is_old else self._seen

    def _read(self) -> Seen:
        is_local = self._where.place is TargetPlatform.LOCAL
        self._seen = self._read_runs() if is_local else self._read_cluster()
        self._seen_at = time.monotonic()
        return self._seen

    def _read_runs(self) -> Seen:
        active = self._runs(ended=False)
        names = frozenset(one.row["name"] for one in active.fleets)
        now = time.monotonic()
        if names != self._kept.active or now - self._kept.read_at > ENDED_S:
            self._kept = _Kept(seen=self._runs(ended=True), active=names, read_at=now)
        ended = self._kept.seen
        refs = {job.ref for job in active.jobs}
        jobs = [*(job for job in ended.jobs if job.ref not in refs), *active.jobs]
        fleets = [*(one for one in ended.fleets if one.row["name"] not in names), *active.fleets]
        return Seen(
            fleets=fleets,
            jobs=sorted(jobs, key=lambda job: job.started_at),
            no_jobs=""
            if jobs
            else "There are no runs yet; start one with: holdfast run -- COMMAND",
        )

    def _runs(self, *, ended: bool) -> Seen:
        try:
            with open_runs(default_home(), self._where.run, ended=ended) as known:
                chosen = [run for run in known if ended or run.is_active]
                fleets = [_seen_fleet(run, self._clock.now()) for run in chosen]
                jobs = [job_status(job) for run in chosen for job in run.recent_jobs()]
                return Seen(fleets=fleets, jobs=jobs)
        except NotFound:  # the run of that name has not begun
            return Seen()

    def _read_cluster(self) -> Seen:
        fleet, jobs = self._open()
        seen = _seen_fleet(fleet, self._clock.now())
        try:
            listed = jobs.jobs()
        except BackendError as error:  # nodes are shown all the same
            return Seen(fleets=[seen], no_jobs=f"Jobs cannot be read: {error}")
        return Seen(fleets=[seen], jobs=listed, no_jobs="" if listed else jobs.none_yet)

    def _open(self) -> tuple[Fleet, Jobs]:
        if self._fleet is None or self._jobs is None:
            everywhere = self._where.place is TargetPlatform.KUBERNETES
            with ExitStack() as opened:
                [self._fleet] = opened.enter_context(open_fleets(self._where))
                jobs_where = replace(self._where, all_namespaces=everywhere)
                self._jobs = opened.enter_context(open_jobs(jobs_where))
                self._opened = opened.pop_all()
        return self._fleet, self._jobs

    def _node(self, fleet: str, name: str) -> Json:
        seen = self._fresh()
        for one in seen.fleets:
            for node in one.nodes:
                if (node.run, node.name) == (fleet, name):
                    row = node_row(node, _placed(seen.jobs))
                    return {**node_story(node, one.incidents), "row": row}
        successors = [
            past.successor
            for one in seen.fleets
            for past in one.incidents
            if past.node == name and past.successor
        ]
        replacement = f"; it was replaced by {successors[-1]}" if successors else ""
        raise UnknownObject(f"node {name} no longer exists{replacement}")

    def _job(self, name: str) -> Json:
        for job in self._fresh().jobs:
            if job.ref == name:
                found = goodput(job, self._clock.now())
                story = self._described(name)
                return {
                    **to_plain(story.status),
                    "ranks": to_plain(story.ranks),
                    "events": [one.plain() for one in story.reported],
                    "goodput": goodput_story([found]) if found is not None else None,
                }
        raise UnknownObject(f"there is no job {name}")

    def _described(self, name: str) -> JobDetails:
        try:
            if self._where.place is not TargetPlatform.LOCAL:
                return self._open()[1].describe(name)
            with open_jobs(self._where) as jobs:
                return jobs.describe(name)
        except NotFound as gone:
            raise UnknownObject(str(gone)) from gone

    def _ask(self, repair: RepairRequest, person: str) -> str:
        if self._where.place is not TargetPlatform.LOCAL:
            return self._ask_of(self._open()[0], repair, person)
        if self._where.run not in (None, repair.fleet):
            raise UnknownObject(f"run {repair.fleet} is not served by this console")
        try:
            with open_runs(default_home(), repair.fleet) as known:
                return self._ask_of(known[0], repair, person)
        except NotFound as gone:
            raise UnknownObject(str(gone)) from gone

    def _ask_of(self, fleet: Fleet, repair: RepairRequest, person: str) -> str:
        if not fleet.is_active:
            raise NotAccepted(f"{fleet.name} is not active")
        if repair.act is ConsoleAction.RESET_BREAKER:
            fleet.close_breaker(self._clock.now())
            return f"Repairs of {fleet.name} resumed"
        node = next((one for one in fleet.nodes() if one.name == repair.node), None)
        if node is None:
            raise UnknownObject(f"node {repair.node} no longer exists")
        if repair.act is ConsoleAction.HOLD:
            fleet.hold(
                repair.node, f"{repair.why} ({person})" if repair.why else f"paused by {person}"
            )
            return f"{repair.node}: repairs are paused"
        if repair.act is ConsoleAction.UNHOLD:
            fleet.hold(repair.node, "")
            return f"{repair.node}: repairs are resumed"
        request = Request(
            id=str(uuid.uuid4()),
            verb=_VERBS[repair.act],
            requested_at=self._clock.now(),
            requested_by=person,
            urgency=Urgency.DEFERRED if repair.when_idle else Urgency.IMMEDIATE,
            why=repair.why,
        )
        in_vain = fleet.submit(repair.node, request)
        if in_vain:
            raise NotAccepted(in_vain)
        waits = "" if request.verb is Verb.RELEASE else _waits_for(node, request, fleet.breaker())
        return f"{request.verb.capitalize()} of {repair.node} is requested{waits}"


def _seen_fleet(fleet: Fleet, now: datetime) -> SeenFleet:
    breaker: Breaker = fleet.breaker()
    nodes = fleet.nodes()
    return SeenFleet(
        row=fleet_row(fleet, breaker, replacement_count(nodes, now)),
        is_active=fleet.is_active,
        nodes=nodes,
        incidents=fleet.incidents(),
    )


def _waits_for(node: NodeStatus, request: Request, breaker: Breaker) -> str:
    """Why a requested repair is deferred, to be appended to the response."""
    if node.held:
        return f"; it waits: repairs on the node are paused: {node.held}"
    if breaker.tripped_at is not None:
        return "; it waits: the circuit breaker has paused all repairs"
    waits = check_waits(replace(node, request=request))
    return f"; it {waits}" if waits else ""


def tables_of(seen: Seen) -> Tables:
    """Rows of all pages; nodes only of fleets with an active controller."""
    jobs = _placed(seen.jobs)
    active = [one for one in seen.fleets if one.is_active]
    past = [case for one in seen.fleets for case in _cases(one)]
    past.sort(key=lambda row: row["detected_at"])
    notes: dict[str, Json] = {"jobs": {"message": seen.no_jobs}, "incidents": {"all": len(past)}}
    return {
        "fleets": {one.row["name"]: one.row for one in active},
        "nodes": {
            node_key(node.run, node.name): node_row(node, jobs)
            for one in active
            for node in one.nodes
        },
        "jobs": {job.name: job_row(job) for job in seen.jobs},
        "incidents": {f"{row['fleet']} {row['id']}": row for row in past[-INCIDENTS:]},
        "notes": notes,
    }


def _placed(jobs: Iterable[JobStatus]) -> dict[str, str]:
    """``node -> job`` of active jobs."""
    return {node: job.name for job in jobs if job.is_active for node in job.placement}


def _cases(fleet: SeenFleet) -> list[Json]:
    phases = {
        node.remediation.incident_id: node.phase.value
        for node in fleet.nodes
        if node.remediation is not None
    }
    rows = []
    for one in fleet.incidents:
        state = phases.get(one.id, "open") if fleet.is_active else "unfinished"
        if one.released_at is not None:
            state = "released"
        elif one.vanished_at is not None:
            state = "vanished"
        rows.append(incident_row(one, fleet.row["name"], state))
    return rows
