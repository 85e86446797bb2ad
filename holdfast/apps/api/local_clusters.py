"""Created clusters on this machine: their controller processes and their nodes."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.local.groups import LocalMachineGroups, opened
from holdfast.adapters.local.layout import RunDir, cluster_dir
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.api.adopted import health_of, renew_nodes, request_of, submit_for
from holdfast.apps.run.cluster_supervisor import WIND_DOWN
from holdfast.apps.views.runs import KnownRun
from holdfast.model.clusters import NodeHealth
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb

_END_S: Final = WIND_DOWN.total_seconds() + 10.0
"""Seconds between SIGTERM and SIGKILL for the processes of a cluster."""


class ClusterSupervisors:
    """Controller processes of clusters; they end with this process.

    ``start`` may be called by one thread only, which lives as long as this process: the kernel ends
    a process with the thread that started it.
    """

    def __init__(self, checkpoint_mirror: str) -> None:
        """Use a location for copies of checkpoints; empty for none."""
        self._mirror = checkpoint_mirror
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, run: RunDir) -> None:
        """Start the controller process of a cluster, unless one is running."""
        process = self._processes.get(run.path)
        if (process is not None and process.poll() is None) or is_held(run):
            return
        with (run.path / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "holdfast.apps.run.cluster_supervisor",
                    "--dir", str(run.path), "--parent", str(os.getpid()),
                    f"--checkpoint-mirror={self._mirror}",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                process_group=0,  # Ctrl-C is for this process, which then ends them
            )  # fmt: skip
        self._processes[run.path] = process
        # Nobody else waits for a process whose cluster was deleted: it would stay a zombie.
        threading.Thread(target=process.wait, daemon=True).start()

    def close(self) -> None:
        """Stop all processes and the machines of their clusters."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class LocalClusters:
    """The ``ClusterNodes`` and the ``CreatedClusterNodes`` of created clusters on this machine."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def health(self, cluster: str) -> Mapping[str, NodeHealth]:
        """See ``ClusterNodes.health``."""
        with self._opened(cluster) as run:
            nodes = run.nodes() if run is not None else ()
        return {one.provider_id: health_of(one) for one in nodes}

    def renew(self, cluster: str, machines: Sequence[str]) -> frozenset[str]:
        """See ``ClusterNodes.renew``."""
        with self._opened(cluster) as run:
            return frozenset() if run is None else renew_nodes(run, machines)

    def incidents(self, cluster: str) -> Sequence[Incident]:
        """See ``CreatedClusterNodes.incidents``."""
        with self._opened(cluster) as run:
            return run.incidents() if run is not None else ()

    def submit(
        self, cluster: str, machine: str, verb: Verb, person: str, checks: Sequence[DeepCheck] = ()
    ) -> str:
        """See ``CreatedClusterNodes.submit``."""
        with self._opened(cluster) as run:
            if run is None or not run.is_active:
                return f"no process manages the cluster {cluster} at the moment; retry later"
            return submit_for(run, machine, request_of(verb, person, checks))

    @contextlib.contextmanager
    def _opened(self, cluster: str) -> Iterator[KnownRun | None]:
        run = cluster_dir(self._home, cluster)
        with opened(run, LocalStore) as store:
            yield None if store is None else KnownRun(run, store, is_held(run))


def local_groups(home: Path, supervisors: ClusterSupervisors) -> LocalMachineGroups:
    """Simulated machine groups on this machine."""

    def start(run: RunDir) -> None:
        try:
            supervisors.start(run)
        except OSError as error:
            raise BackendError(f"{run.path}: cannot start a process: {error}") from error

    return LocalMachineGroups(home, start)
