"""Nodes of a Slurm cluster, as commands show them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.node_text import JobFacts
from holdfast.adapters.slurm.jobs.views import PREFIX
from holdfast.adapters.slurm.nodes.munge import trust_of
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.state import FILE, SlurmStore
from holdfast.adapters.slurm.nodes.views import known_nodes, last_response_at, node_view, record_of
from holdfast.adapters.slurm.settings import STATE_DIR, SlurmSettings
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.nodes import ClusterFleet, NodeStatus, incidents_by_node, node_status
from holdfast.model.errors import ConfigError
from holdfast.model.hardware import DeviceGroup
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Breaker
from holdfast.model.requests import Request


def connect(state_dir: Path | None) -> "SlurmFleet":
    """Return the fleet of a cluster, from the state of its controller.

    Raises:
        ConfigError: no controller has run with that directory.
        BackendError: the state cannot be read.

    """
    return SlurmFleet(open_store(state_dir))


def open_store(state_dir: Path | None) -> SlurmStore:
    """Open the state of a controller.

    Raises:
        ConfigError: no controller has run with that directory.
        BackendError: the state cannot be read.

    """
    path = (state_dir or STATE_DIR) / FILE
    if not path.is_file():
        raise ConfigError(
            f"--state-dir: {path} not found; give the state_dir of the controller's table slurm,"
            " on the machine where it runs"
        )
    return SlurmStore(path)


def settings_of(store: SlurmStore) -> SlurmSettings:
    """Return the settings of the controller, as far as its state has them."""
    places = store.places()
    conf = Path(places.conf) if places.conf else None
    return SlurmSettings(report_dir=Path(places.report_dir), conf=conf)


class SlurmFleet(ClusterFleet):
    """A ``Fleet``: all nodes of a cluster that Holdfast manages."""

    def __init__(self, store: SlurmStore) -> None:
        self._store = store
        settings = settings_of(store)
        self._slurm = Slurm(settings.conf, settings.timeout)
        self._reports = Reports(settings.report_dir, trust_of(settings.conf))
        self._clock = SystemClock()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @property
    def name(self) -> str:
        """See ``Fleet.name``."""
        return "slurm"

    def nodes(self, *, brief: bool = False) -> list[NodeStatus]:  # noqa: ARG002 - takes no calls
        """See ``Fleet.nodes``."""
        now = self._clock.now()
        self._reports.refresh(now)
        memory = self._store.read()
        known = known_nodes(self._slurm.nodes(), self._reports.received(), memory)
        incidents = incidents_by_node(self.incidents())
        jobs = self._jobs()
        listed = []
        for name, one in known.items():
            record = record_of(one, now)
            heartbeat_at = last_response_at(one, record, now)
            view = node_view(one, record, memory, heartbeat_at=heartbeat_at, jobs=(), now=now)
            notices = one.received.report.notices if one.received is not None else ()
            status = node_status(view, run=self.name, notices=notices, incidents=incidents[name])
            listed.append(_with_jobs(status, jobs[name]))
        return listed

    def _jobs(self) -> Mapping[str, Sequence[JobFacts]]:
        found: defaultdict[str, list[JobFacts]] = defaultdict(list)
        for job in sorted(self._slurm.jobs(), key=lambda one: (len(one.id), one.id)):
            for node in job.nodes:
                found[node].append(job)
        return found

    def incidents(self) -> tuple[Incident, ...]:
        """See ``Fleet.incidents``."""
        return self._store.list_incidents()

    def hardware(self, node: str) -> tuple[DeviceGroup, ...]:
        """See ``Fleet.hardware``."""
        self._reports.refresh(self._clock.now())
        return self._reports.hardware(node)

    def submit(self, node: str, request: Request) -> str:
        """See ``Fleet.submit``."""
        self._store.put_request(node, request)
        return ""

    def hold(self, node: str, why: str) -> None:
        """See ``Fleet.hold``."""
        self._store.hold(node, why)

    def breaker(self) -> Breaker:
        """See ``Fleet.breaker``."""
        return self._store.read().breaker

    def close_breaker(self, now: datetime) -> None:
        """See ``Fleet.close_breaker``."""
        self._store.put_breaker(Breaker(reset_at=now))

    @property
    def poll_interval_s(self) -> float:
        """See ``Fleet.poll_interval_s``: a repair takes minutes, and each poll calls slurmctld."""
        return 2.0


def _with_jobs(status: NodeStatus, jobs: Sequence[JobFacts]) -> NodeStatus:
    """Return a node with the jobs on it, and its rank if it has a single job."""
    names = dict.fromkeys(f"{PREFIX}{job.id}" for job in jobs)  # one entry per heterogeneous job
    rank = jobs[0].nodes.index(status.name) if len(jobs) == 1 else None
    return replace(status, job=",".join(names), rank=rank)
