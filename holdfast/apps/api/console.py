"""Data source of the web console: the same fleets and jobs that the CLI shows."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
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
from holdfast.apps.api.console_jobs import ConsoleJobs
from holdfast.apps.api.console_rows import node_details, node_row
from holdfast.apps.api.console_tables import (
    ConsoleSnapshot,
    fleet_of,
    incident_details,
    job_details,
    jobs_by_node,
    tables_of,
)
from holdfast.apps.api.metrics import metrics_text
from holdfast.apps.target import TargetPlatform, Where, open_fleets, open_jobs
from holdfast.apps.views.goodput import goodput, goodput_details
from holdfast.apps.views.jobs import JobDetails, Jobs
from holdfast.apps.views.nodes import (
    Fleet,
    NodeStatus,
    check_waits,
)
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.overview import snapshot
from holdfast.apps.views.run_jobs import job_status
from holdfast.apps.views.runs import open_runs
from holdfast.apps.views.trends import Range, trends
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.hardware import DeviceGroup
from holdfast.model.health import Urgency
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request, Verb
from holdfast.ports.clock import Clock

T = TypeVar("T")

SHORTEST_PAUSE_S: Final = 0.2
"""Polling interval: a fault must be visible within a second."""

ENDED_S: Final = 30.0
"""Cache lifetime of ended runs: they change only if a person removes one."""

INTERVALS: Final = 30
"""Points of each plot of trends: a bar of each is wide enough on a phone."""

_VERBS: Final = {
    ConsoleAction.REBOOT: Verb.REBOOT,
    ConsoleAction.REPLACE: Verb.REPLACE,
    ConsoleAction.DEEP_CHECK: Verb.DEEP_CHECK,
    ConsoleAction.RELEASE: Verb.RELEASE,
}


@dataclass
class _EndedRuns:
    """Ended runs, which no longer change."""

    seen: ConsoleSnapshot = field(default_factory=ConsoleSnapshot)
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
        self._ended_runs = _EndedRuns()
        self._seen = ConsoleSnapshot()
        self._seen_at = float("-inf")
        self._job_calls = ConsoleJobs(where)

    def close(self) -> None:
        """Close all open resources."""
        self._thread.submit(self._opened.close).result()
        self._thread.shutdown()
        self._job_calls.close()

    @property
    def pause_s(self) -> float:
        """See ``ConsoleBackend.pause_s``."""
        own = self._fleet.poll_interval_s if self._fleet is not None else 0.0
        return max(SHORTEST_PAUSE_S, own)

    def read_tables(self) -> Tables:
        """See ``ConsoleBackend.read_tables``."""
        return self._in_thread(lambda: tables_of(self._read(), self._clock.now()))

    def node(self, fleet: str, name: str) -> Json:
        """See ``ConsoleBackend.node``."""
        return self._in_thread(lambda: self._node(fleet, name))

    def incident(self, fleet: str, name: str) -> Json:
        """See ``ConsoleBackend.incident``."""
        seen, now = self._in_thread(self._fresh), self._clock.now()
        for one in seen.fleets:
            if one.name == fleet:
                return incident_details(one, seen, name, now)
        raise UnknownObject(f"there is no incident {name}")

    def job(self, name: str) -> Json:
        """See ``ConsoleBackend.job``."""
        return self._in_thread(lambda: self._job(name))

    def checkpoints(self, job: str) -> Json:
        """See ``ConsoleBackend.checkpoints``."""
        return self._job_calls.checkpoints(job)

    def evidence(self, job: str) -> Json:
        """See ``ConsoleBackend.evidence``."""
        return self._job_calls.evidence(job)

    def fleet_of_job(self, name: str) -> str:
        """See ``ConsoleBackend.fleet_of_job``."""
        seen = self._in_thread(self._fresh)
        for job in seen.jobs:
            if job.ref == name:
                return fleet_of(job, seen)
        raise UnknownObject(f"job {name} not found")

    def read_log(self, job: str, rank: int, attempt: int, after: str) -> Json:
        """See ``ConsoleBackend.read_log``."""
        return self._job_calls.read_log(job, rank, attempt, after)

    def cancel_job(self, job: str) -> str:
        """See ``ConsoleBackend.cancel_job``."""
        return self._job_calls.cancel(job)

    def goodput(self, may_see: Callable[[str], bool]) -> Json:
        """See ``ConsoleBackend.goodput``."""
        seen = self._in_thread(self._fresh)
        jobs = [job for job in seen.jobs if may_see(fleet_of(job, seen))]
        now = self._clock.now()
        return goodput_details([one for one in (goodput(job, now) for job in jobs) if one])

    def trends(self, hours: int, may_see: Callable[[str], bool]) -> Json:
        """See ``ConsoleBackend.trends``."""
        seen, now = self._in_thread(self._fresh), self._clock.now()
        fleets = [one for one in seen.fleets if may_see(one.name)]
        jobs = [job for job in seen.jobs if may_see(fleet_of(job, seen))]
        return trends(
            Range(begin=now - timedelta(hours=hours), end=now, intervals=INTERVALS),
            [(case, one.is_active) for one in fleets for case in one.incidents],
            [node for one in fleets if one.is_active for node in one.nodes],
            [one for one in (goodput(job, now) for job in jobs) if one],
        )

    def metrics(self, may_see: Callable[[str], bool]) -> str:
        """See ``ConsoleBackend.metrics``."""
        seen = self._in_thread(self._fresh)
        fleets = [one for one in seen.fleets if may_see(one.name)]
        jobs = [job for job in seen.jobs if may_see(fleet_of(job, seen))]
        return metrics_text(fleets, jobs, self._clock.now())

    def submit(self, repair: RepairRequest, person: str) -> str:
        """See ``ConsoleBackend.submit``."""
        return self._in_thread(lambda: self._request_repair(repair, person))

    def _in_thread(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result()

    def _fresh(self) -> ConsoleSnapshot:
        """Cached snapshot if fresh, otherwise a new one."""
        is_old = time.monotonic() - self._seen_at > self.pause_s
        return self._read() if is_old else self._seen

    def _read(self) -> ConsoleSnapshot:
        is_local = self._where.place is TargetPlatform.LOCAL
        self._seen = self._read_runs() if is_local else self._read_cluster()
        self._seen_at = time.monotonic()
        return self._seen

    def _read_runs(self) -> ConsoleSnapshot:
        active = self._runs(ended=False)
        names = frozenset(one.name for one in active.fleets)
        now = time.monotonic()
        if names != self._ended_runs.active or now - self._ended_runs.read_at > ENDED_S:
            self._ended_runs = _EndedRuns(seen=self._runs(ended=True), active=names, read_at=now)
        ended = self._ended_runs.seen
        refs = {job.ref for job in active.jobs}
        jobs = [*(job for job in ended.jobs if job.ref not in refs), *active.jobs]
        fleets = [*(one for one in ended.fleets if one.name not in names), *active.fleets]
        return ConsoleSnapshot(
            fleets=fleets,
            jobs=sorted(jobs, key=lambda job: job.started_at),
            no_jobs=""
            if jobs
            else "There are no runs yet; start one with: holdfast run -- COMMAND",
        )

    def _runs(self, *, ended: bool) -> ConsoleSnapshot:
        try:
            with open_runs(default_home(), self._where.run, ended=ended) as known:
                chosen = [run for run in known if ended or run.is_active]
                fleets = [snapshot(run) for run in chosen]
                jobs = [job_status(job) for run in chosen for job in run.recent_jobs()]
                return ConsoleSnapshot(fleets=fleets, jobs=jobs)
        except NotFound:  # the run of that name has not begun
            return ConsoleSnapshot()

    def _read_cluster(self) -> ConsoleSnapshot:
        fleet, jobs = self._open()
        seen = snapshot(fleet)
        try:
            listed = jobs.with_steps(jobs.jobs(), timedelta(0))
        except BackendError as error:  # nodes are shown all the same
            return ConsoleSnapshot(fleets=[seen], no_jobs=f"Jobs cannot be read: {error}")
        return ConsoleSnapshot(
            fleets=[seen],
            jobs=listed,
            all_jobs_in=fleet.name,
            no_jobs="" if listed else jobs.none_yet,
        )

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
        chosen = [one for one in seen.fleets if one.name == fleet]
        for one in chosen:
            for node in one.nodes:
                if (node.run, node.name) == (fleet, name):
                    row = node_row(node, jobs_by_node(seen.jobs))
                    return {
                        **node_details(node, one.incidents),
                        "row": row,
                        "hardware": to_plain(self._hardware(fleet, name)),
                        "no_hardware": self._no_hardware(),
                    }
        successors = [
            past.successor
            for one in chosen
            for past in one.incidents
            if past.node == name and past.successor
        ]
        replacement = f"; it was replaced by {successors[-1]}" if successors else ""
        raise UnknownObject(f"node {name} no longer exists{replacement}")

    def _hardware(self, fleet: str, node: str) -> tuple[DeviceGroup, ...]:
        if self._where.place is not TargetPlatform.LOCAL:
            return self._open()[0].hardware(node)
        try:
            with open_runs(default_home(), fleet, ended=True) as known:
                return known[0].hardware(node)
        except NotFound:  # removed meanwhile
            return ()

    def _no_hardware(self) -> str:
        """Why a node may have no devices to show."""
        if self._where.place is TargetPlatform.LOCAL:
            return "The nodes of a run share this machine. Their agents read kernel logs only."
        return "The agent has not reported any GPU, Neuron or network device, or memory controller."

    def _job(self, name: str) -> Json:
        seen = self._fresh()
        for job in seen.jobs:
            if job.ref == name:
                return job_details(self._described(name), fleet_of(job, seen), self._clock.now())
        raise UnknownObject(f"job {name} not found")

    def _described(self, name: str) -> JobDetails:
        try:
            if self._where.place is not TargetPlatform.LOCAL:
                return self._open()[1].describe(name)
            with open_jobs(self._where) as jobs:
                return jobs.describe(name)
        except NotFound as gone:
            raise UnknownObject(str(gone)) from gone

    def _request_repair(self, repair: RepairRequest, person: str) -> str:
        if self._where.place is not TargetPlatform.LOCAL:
            return self._request_checks(self._open()[0], repair, person)
        if self._where.run not in (None, repair.fleet):
            raise UnknownObject(f"run {repair.fleet} is not served by this console")
        try:
            with open_runs(default_home(), repair.fleet) as known:
                return self._request_checks(known[0], repair, person)
        except NotFound as gone:
            raise UnknownObject(str(gone)) from gone

    def _request_checks(self, fleet: Fleet, repair: RepairRequest, person: str) -> str:
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
        rejection = fleet.submit(repair.node, request)
        if rejection:
            raise NotAccepted(rejection)
        waits = "" if request.verb is Verb.RELEASE else _waits_for(node, request, fleet.breaker())
        return f"{request.verb.capitalize()} of {repair.node} is requested{waits}"


def _waits_for(node: NodeStatus, request: Request, breaker: Breaker) -> str:
    """Why a requested repair is deferred, to be appended to the response."""
    if node.pause_reason:
        return f"; it waits: repairs on the node are paused: {node.pause_reason}"
    if breaker.tripped_at is not None:
        return "; it waits: the circuit breaker has paused all repairs"
    waits = check_waits(replace(node, request=request))
    return f"; it {waits}" if waits else ""
