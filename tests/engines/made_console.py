"""A console over a made fleet of any size, in a process of its own.

    python -m tests.engines.made_console 50000

All from the snapshot of fleets and jobs to the page is the real thing. It prints its port.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from holdfast.api.audit import AuditTrail
from holdfast.api.call import AwsLocation
from holdfast.api.clusters import Cluster
from holdfast.api.console import Console
from holdfast.api.console_clusters import ClusterViews
from holdfast.api.console_live import Live
from holdfast.api.console_sessions import Sessions
from holdfast.api.console_source import Json, RepairRequest, Tables, UnknownObject
from holdfast.api.identity import AccessKey, Role, token_digest
from holdfast.api.operation_calls import OperationCalls
from holdfast.apps.api.adopted import AdoptedCluster
from holdfast.apps.api.console_rows import node_details, node_row
from holdfast.apps.api.console_tables import (
    ConsoleSnapshot,
    incident_details,
    job_details,
    jobs_by_node,
    tables_of,
)
from holdfast.apps.api.metrics import metrics_text
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.checkpoints import checkpoint_rows
from holdfast.apps.views.goodput import goodput, goodput_details
from holdfast.apps.views.jobs import Attempt, JobDetails, JobEvent, JobStatus, RankStatus
from holdfast.apps.views.nodes import NodeStatus
from holdfast.apps.views.overview import FleetSnapshot
from holdfast.apps.views.trends import Range, trends
from holdfast.kit.rotated_lines import RotatedLines
from holdfast.kit.serial import to_plain
from holdfast.model.health import Remedy, Urgency
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.names import NODE_NAME_PREFIX, Condition, PodPhase, Reason
from holdfast.model.nodes import Breaker, Phase, Remediation
from holdfast.model.requests import Request
from holdfast.model.sagemaker import EventLevel
from tests.engines.recorded_devices import devices
from tests.ports.fake_sessions import FakeSessions

FLEET: Final = "made"
TOKEN: Final = "made " * 5
BIG_JOB: Final = "pretrain"
"""Job on a quarter of the nodes."""

GROUPS: Final = 10
OF_JOB: Final = 64
"""Nodes of each other job."""

_LINE: Final = "NVRM: Xid (PCI:0000:b9:00): 79, pid=1234, GPU has fallen off the bus."
_PHASES: Final = dict.fromkeys(Phase, 1) | {Phase.SCHEDULABLE: 60}
_OUT: Final = frozenset(Phase) - {Phase.SCHEDULABLE, Phase.JOINING, Phase.CHECKING}


def name_of(number: int) -> str:
    """Return the name of a node."""
    return f"{NODE_NAME_PREFIX}i-{number:017x}"


class MadeFleet:
    """Nodes, jobs and incidents. A ``RepairableFleet``; some nodes change their phase each second.

    The first node is always faulty, and has an open incident and devices.
    """

    name = FLEET
    is_active = True

    def __init__(self, nodes: int, changes_per_s: int) -> None:
        self._chance = random.Random(1)
        self._changes_per_s = changes_per_s
        self._changed_at = time.monotonic()
        self.now = datetime.now(UTC)
        self._nodes = [self._made(number) for number in range(nodes)]
        self._past = [self._incident(number) for number in range(min(nodes // 5, 3000))]
        self.jobs = [*self._made_jobs(nodes)]

    def nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes, after the changes that are due."""
        due = round((time.monotonic() - self._changed_at) * self._changes_per_s)
        if due:
            self._changed_at += due / self._changes_per_s
            places = range(1, len(self._nodes))
            for place in self._chance.sample(places, min(due, len(places))):
                phase = self._chance.choices(list(_PHASES), list(_PHASES.values()))[0]
                self._nodes[place] = _in_phase(self._nodes[place], phase, datetime.now(UTC))
        return self._nodes

    def incidents(self) -> Sequence[Incident]:
        """Return past incidents and the open one of the first node."""
        return [*self._past, _open_incident(self.now)]

    def submit(self, node: str, request: Request) -> str:
        """Refuse every request."""
        return f"{node} is made: no {request.verb}"

    def snapshot(self) -> ConsoleSnapshot:
        """Return the current state."""
        fleet = FleetSnapshot(
            name=FLEET,
            is_active=True,
            breaker=Breaker(),
            nodes=tuple(self.nodes()),
            incidents=tuple(self.incidents()),
        )
        return ConsoleSnapshot(fleets=[fleet], jobs=self.jobs, all_jobs_in=FLEET)

    def _made(self, number: int) -> NodeStatus:
        node = NodeStatus(
            run=FLEET, is_active=True, name=name_of(number),
            provider_id=f"aws:///usw2-az1/i-{number:017x}", boot_id="b", phase=Phase.SCHEDULABLE,
            phase_since=self.now, health_status=None, deep_check_status=None, job="", rank=None,
            powered_on=None, heartbeat_at=self.now, replaces="", pause_reason="", closed="",
            remediation=None, request=None, conditions={}, faults=(), notices=(), history=(),
            checks=(), incidents=(), group=f"workers-{number % GROUPS}",
            instance_type="p5.48xlarge", created_at=self.now - timedelta(days=3),
        )  # fmt: skip
        if not number:
            phase = Phase.QUARANTINED
            node = replace(node, incidents=(_open_incident(self.now).id,))
        else:
            phase = self._chance.choices(list(_PHASES), list(_PHASES.values()))[0]
        since = self.now - timedelta(minutes=self._chance.randrange(1, 30))
        return _in_phase(node, phase, since)

    def _incident(self, number: int) -> Incident:
        at = self.now - timedelta(minutes=self._chance.randrange(30, 6 * 1440))
        node = name_of(number + 1)
        return Incident(
            id=f"{node}-{number}", node=node, provider_id=node, reason=Reason.XID_REBOOT,
            remedy="reboot", message=_LINE, detected_at=at, quarantined_at=at,
            drained_at=at + timedelta(seconds=40), repaired_at=at + timedelta(minutes=8),
            checked_at=at + timedelta(minutes=9), released_at=at + timedelta(minutes=9),
            jobs=(AffectedJob(job=BIG_JOB, attempt=1, stopped_at=at, step=number),),
        )  # fmt: skip

    def _made_jobs(self, nodes: int) -> Iterator[JobStatus]:
        big = nodes // 4
        yield self._job(BIG_JOB, range(1, big + 1))
        for number in range(min(1000, (nodes - big) // OF_JOB)):
            first = big + 1 + number * OF_JOB
            yield self._job(f"job-{number}", range(first, min(first + OF_JOB, nodes)))

    def _job(self, name: str, numbers: range) -> JobStatus:
        placement = tuple(map(name_of, numbers))
        begun = self.now - timedelta(hours=9)
        cuts = [begun, begun + timedelta(hours=4), begun + timedelta(hours=8)]
        attempts = tuple(
            Attempt(
                attempt=number + 1, placement=placement, started_at=cut,
                stopped_at=cuts[number + 1] - timedelta(minutes=4) if number < 2 else None,
                waited=timedelta(minutes=4) if number else None, started_in=timedelta(minutes=2),
                stopped_in=timedelta(seconds=20) if number < 2 else None, first_step=1000 * number,
                last_step=1000 * number + 900, lost_steps=50 if number < 2 else None,
                kind="hardware" if number < 2 else "", node=placement[0] if number < 2 else "",
                reason=Reason.XID_REBOOT if number < 2 else "",
                evidence=_LINE if number < 2 else "",
            )
            for number, cut in enumerate(cuts)
        )  # fmt: skip
        return JobStatus(
            name=name, is_active=True, phase="running", phase_since=cuts[2] + timedelta(minutes=2),
            reason="", started_at=begun, nodes=len(placement), attempt=3, placement=placement,
            step=2900, hardware_retries=2, max_retries=10, app_retries=0, max_app_retries=3,
            grace=timedelta(seconds=30), attempts=attempts,
        )  # fmt: skip


def _in_phase(node: NodeStatus, phase: Phase, since: datetime) -> NodeStatus:
    reason = Reason.XID_REBOOT
    repair = Remediation(
        incident_id=_open_incident(since).id, opened_at=since, condition=Condition.NVIDIA_REBOOT,
        reason=reason, remedy=Remedy.REBOOT, urgency=Urgency.IMMEDIATE,
    ) if phase in _OUT else None  # fmt: skip
    return replace(
        node,
        phase=phase,
        phase_since=since,
        remediation=repair,
        conditions={Condition.NVIDIA_REBOOT: reason} if repair is not None else {},
    )


def _open_incident(now: datetime) -> Incident:
    at = now - timedelta(minutes=3)
    return Incident(
        id="open-1", node=name_of(0), provider_id=name_of(0), reason=Reason.XID_REBOOT,
        remedy="reboot", message=_LINE, detected_at=at, quarantined_at=at,
    )  # fmt: skip


class MadeSource:
    """A ``ConsoleBackend`` of a ``MadeFleet``."""

    pause_s = 0.2

    def __init__(self, fleet: MadeFleet) -> None:
        self._fleet = fleet
        self._checkpoints = Path(tempfile.mkdtemp())
        for step in (100, 200):
            folder = self._checkpoints / f"checkpoint-{step}"
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(b"0" * 64)

    def read_tables(self) -> Tables:
        """See ``ConsoleBackend.read_tables``."""
        return tables_of(self._fleet.snapshot(), datetime.now(UTC))

    def node(self, fleet: str, name: str) -> Json:
        """See ``ConsoleBackend.node``."""
        for one in self._fleet.nodes():
            if (one.run, one.name) == (fleet, name):
                row = node_row(one, jobs_by_node(self._fleet.jobs))
                hardware = to_plain(devices(self._fleet.now))
                return {
                    **node_details(one, self._fleet.incidents()),
                    "row": row,
                    "hardware": hardware,
                    "no_hardware": "",
                }
        raise UnknownObject(f"{fleet} {name}")

    def incident(self, fleet: str, name: str) -> Json:
        """See ``ConsoleBackend.incident``."""
        seen = self._fleet.snapshot()
        if fleet != FLEET:
            raise UnknownObject(fleet)
        return incident_details(seen.fleets[0], seen, name, datetime.now(UTC))

    def job(self, name: str) -> Json:
        """See ``ConsoleBackend.job``."""
        job = self._job(name)
        ranks = tuple(
            RankStatus(rank=rank, node=node, name=f"{name}-{rank}", state=PodPhase.RUNNING)
            for rank, node in enumerate(job.placement)
        )
        events = tuple(
            JobEvent(
                at=self._fleet.now - timedelta(minutes=number),
                event="NodeQuarantined",
                level=EventLevel.ERROR,
                message=f"{name_of(number + 1)} quarantined for {Reason.XID_REBOOT}: reboot",
            )
            for number in range(60, 0, -1)
        )
        return job_details(
            JobDetails(status=job, ranks=ranks, reported=events), FLEET, datetime.now(UTC)
        )

    def checkpoints(self, job: str) -> Json:
        """See ``ConsoleBackend.checkpoints``."""
        self._job(job)
        return {
            "rows": [to_plain(one) for one in checkpoint_rows(self._checkpoints)],
            "message": "",
        }

    def evidence(self, job: str) -> Json:
        """See ``ConsoleBackend.evidence``."""
        raise UnknownObject(job)

    def fleet_of_job(self, name: str) -> str:
        """See ``ConsoleBackend.fleet_of_job``."""
        self._job(name)
        return FLEET

    def read_log(self, job: str, rank: int, attempt: int, after: str) -> Json:
        """See ``ConsoleBackend.read_log``."""
        self._job(job)
        lines = [f"rank {rank}: step {step}, loss {9 / (step + 1):.4f}" for step in range(3000)]
        return {
            "text": "" if after else "".join(f"{line}\n" for line in lines),
            "cursor": "1",
            "attempt": attempt or 3,
            "is_cut": False,
            "has_more": False,
        }

    def cancel_job(self, job: str) -> str:
        """See ``ConsoleBackend.cancel_job``."""
        raise UnknownObject(job)

    def metrics(self, may_see: Callable[[str], bool]) -> str:
        """See ``ConsoleBackend.metrics``."""
        seen = self._fleet.snapshot()
        return metrics_text(seen.fleets, seen.jobs, datetime.now(UTC))

    def trends(self, hours: int, may_see: Callable[[str], bool]) -> Json:
        """See ``ConsoleBackend.trends``."""
        now = datetime.now(UTC)
        found = [one for one in (goodput(job, now) for job in self._fleet.jobs) if one]
        return trends(
            Range(begin=now - timedelta(hours=hours), end=now, intervals=30),
            [(case, True) for case in self._fleet.incidents()],
            self._fleet.nodes(),
            found,
        )

    def goodput(self, may_see: Callable[[str], bool]) -> Json:
        """See ``ConsoleBackend.goodput``."""
        now = datetime.now(UTC)
        return goodput_details(
            [one for one in (goodput(job, now) for job in self._fleet.jobs) if one]
        )

    def submit(self, repair: RepairRequest, person: str) -> str:
        """See ``ConsoleBackend.submit``."""
        raise UnknownObject(f"{repair.node} {person}")

    def _job(self, name: str) -> JobStatus:
        for job in self._fleet.jobs:
            if job.ref == name:
                return job
        raise UnknownObject(name)


def console_of(fleet: MadeFleet) -> tuple[Console, Live]:
    """Return a console of a fleet; the owner of ``TOKEN`` is an administrator."""
    clock, source = SystemClock(), MadeSource(fleet)
    key = AccessKey(
        access_key_id="A" * 20,
        secret_access_key="b" * 20,
        token_sha256=token_digest(TOKEN.strip()),
        role=Role.ADMIN,
    )
    cluster = AdoptedCluster(fleet, FLEET, fleet.now)

    @contextmanager
    def clusters() -> Iterator[Sequence[Cluster]]:
        yield [cluster]

    place = AwsLocation(region="us-east-1", account="123456789012")
    operations = OperationCalls(place, clusters, clock, None, None)
    live = Live(source, clock, lambda error: sys.exit(repr(error)))
    audit = AuditTrail(RotatedLines(Path(tempfile.mkdtemp(), "audit.jsonl")), clock)
    sessions = Sessions([key], FakeSessions(), clock)
    return Console(source, sessions, live, audit, ClusterViews(operations)), live


def main(argv: Sequence[str]) -> None:
    """Serve until the process is terminated: ``NODES [CHANGES_PER_S]``."""
    changes = int(argv[1]) if len(argv) > 1 else 0
    console, live = console_of(MadeFleet(int(argv[0]), changes))
    app: Any = Starlette(routes=console.routes())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    live.is_ending = lambda: server.should_exit
    threading.Thread(target=_send_port, args=(server,), daemon=True).start()
    server.run()


def _send_port(server: uvicorn.Server) -> None:
    while not server.started:
        time.sleep(0.01)
    sys.stdout.write(f"{server.servers[0].sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
