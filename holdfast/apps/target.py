"""Selected target: a platform and a place on it, and the connections to its nodes and jobs."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # each takes 20 ms to import, and help texts need neither
    from holdfast.apps.views.jobs import Jobs
    from holdfast.apps.views.nodes import Fleet

_LAYOUT: Final = "holdfast.adapters.local.layout"
_LOCAL: Final = "holdfast.apps.views.runs"
_KUBERNETES: Final = "holdfast.apps.kubernetes.nodes"
_SLURM: Final = "holdfast.apps.slurm.nodes"

_LOCAL_JOBS: Final = "holdfast.apps.views.run_jobs"
_KUBERNETES_JOBS: Final = "holdfast.apps.kubernetes.jobs"
_SLURM_JOBS: Final = "holdfast.apps.slurm.jobs"


class TargetPlatform(StrEnum):
    """Target platform."""

    LOCAL = "local"
    """Runs on this machine."""

    KUBERNETES = "kubernetes"
    """Kubernetes cluster."""

    SLURM = "slurm"
    """Slurm cluster whose controller runs on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What selects a target; None and False leave the choice to the platform."""

    run: str | None = None
    platform: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    state_dir: Path | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    cluster: str | None = None
    """Name of a cluster on this machine."""

    everything: bool = False
    """Whether to include jobs on this machine that ended before others."""

    @property
    def place(self) -> TargetPlatform:
        """Target platform, also where only an option of one platform is given."""
        if self.run is not None or self.cluster is not None:
            return TargetPlatform.LOCAL
        if self.state_dir is not None:
            return TargetPlatform.SLURM
        if self.is_kubernetes:
            return TargetPlatform.KUBERNETES
        return TargetPlatform(self.platform or TargetPlatform.LOCAL)

    @property
    def is_kubernetes(self) -> bool:
        """Whether an option that only Kubernetes has was given."""
        given = (self.kubeconfig, self.context, self.namespace)
        return self.all_namespaces or any(one is not None for one in given)

    def in_all_namespaces(self) -> "Where":
        """Return the same target with the jobs of all namespaces, unless one is given."""
        is_wider = self.place is TargetPlatform.KUBERNETES and self.namespace is None
        return replace(self, all_namespaces=is_wider)

    def as_options(self) -> str:
        """Return options that select the same target in another command, after a blank."""
        if self.run is not None:
            return f" --run {self.run}"
        if self.place is TargetPlatform.LOCAL:
            return ""
        given = {
            "kubeconfig": self.kubeconfig, "context": self.context, "state-dir": self.state_dir,
        }  # fmt: skip
        options = "".join(f" --{name} {one}" for name, one in given.items() if one is not None)
        return options or f" --platform {self.place}"


@contextlib.contextmanager
def open_fleets(where: Where, *, ended: bool = False) -> "Iterator[Sequence[Fleet]]":
    """Open the selected fleets: a cluster, or the active runs and with ``ended`` all runs.

    Raises:
        NotFound: there is no run with this name.
        ConfigError: the cluster cannot be found.
        BackendError: its state cannot be read.

    """
    if where.place is TargetPlatform.LOCAL:
        open_runs, home = import_module(_LOCAL).open_runs, import_module(_LAYOUT).default_home()
        with open_runs(home, where.run, ended=ended) as known:
            yield known
        return
    if where.place is TargetPlatform.SLURM:
        opened = import_module(_SLURM).connect(where.state_dir)
    else:
        opened = import_module(_KUBERNETES).connect(where.kubeconfig, where.context)
    with contextlib.closing(opened) as fleet:
        yield [fleet]


@contextlib.contextmanager
def open_jobs(where: Where) -> "Iterator[Jobs]":
    """Open the jobs of the selected target.

    Raises:
        ConfigError: the cluster cannot be found.

    """
    jobs: Any
    match where.place:
        case TargetPlatform.LOCAL:
            local = import_module(_LOCAL_JOBS).RunJobs
            home = import_module(_LAYOUT).default_home()
            jobs = local(home, where.everything, where.cluster or "")
        case TargetPlatform.KUBERNETES:
            namespace = "" if where.all_namespaces else where.namespace
            connect = import_module(_KUBERNETES_JOBS).connect_jobs
            jobs = connect(where.kubeconfig, where.context, namespace)
        case TargetPlatform.SLURM:
            jobs = import_module(_SLURM_JOBS).connect_jobs(where.state_dir)
    with contextlib.closing(jobs):
        yield jobs
