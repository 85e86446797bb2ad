"""Jobs of several kinds with ``holdfast launch`` in each of their pods."""

import os
import sys
from pathlib import Path
from typing import Any

from gangs import Indexed, Mpi, Set, pods
from trainers import Train

from tests.engines.ports import free_port

Json = dict[str, Any]

RANK = """
import fcntl, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
attempt, rank = os.environ.get("HOLDFAST_ATTEMPT") or "1", os.environ["RANK"]
number = os.environ["HOLDFAST_LAUNCH_ROUND"]
(folder / "alive").mkdir(exist_ok=True)
own = f"{int(attempt):03} {int(number):03}"
mine = (folder / "alive" / f"{own} {rank}").open("w")
fcntl.flock(mine, fcntl.LOCK_EX)
for path in (folder / "alive").iterdir():
    if path.name[:7] < own:
        with path.open() as other:
            try:
                fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                (folder / "overlap").write_text(f"{path.name} is alive in {own}")
name = f"{attempt}.{number}.{rank}"
(folder / name).touch()
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.01)
"""
"""Creates a file ``ATTEMPT.ROUND.RANK``, and ``overlap`` if a rank of an earlier round is alive:
its lock ends with its process. Exits with 5 if there is ``exit.ATTEMPT.ROUND.RANK``, and with 0 if
there is ``finish``."""

_INDEX = "metadata.labels['training.kubeflow.org/replica-index']"


class LaunchedJob(Indexed):
    """An indexed Job whose pods run one container with a command."""

    container: Json

    def body(self) -> Json:
        body = super().body()
        body["template"]["spec"]["containers"][0] |= self.container
        return body


class LaunchedSet(Set):
    """A JobSet of one indexed Job whose pods run one container with a command."""

    container: Json

    def body(self) -> Json:
        template = pods()
        template["spec"]["containers"][0] |= self.container
        job = {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "template": template,
        }
        return {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]}


class LaunchedTrain(Train):
    """A TrainJob, whose runtime sets ``PET_NODE_RANK``."""

    container: Json

    def body(self) -> Json:
        body = super().body()
        body["trainer"] |= self.container
        return body


class LaunchedMpi(Mpi):
    """An MPIJob whose workers run the command, and whose launcher waits on a node of its own.

    The launcher ends with 0 if there is a file ``finish``, and with 1 if there is one ``lost``,
    which it removes, as ``mpirun`` ends if it loses a worker.
    """

    container: Json
    folder: Path

    def body(self) -> Json:
        body = super().body()
        launcher, worker = (
            body["mpiReplicaSpecs"][kind]["template"]["spec"] for kind in ("Launcher", "Worker")
        )
        worker["containers"][0] |= self.container
        lost, finish = self.folder / "lost", self.folder / "finish"
        waits = f"until [ -e {finish} ]; do ! rm {lost} 2>/dev/null || exit 1; sleep 0.1; done"
        launcher["containers"][0] |= {"command": ["sh", "-c", waits]}
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"training.kubeflow.org/job-role": "worker"}},
        }
        launcher["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        }
        return body


def launching(job: LaunchedJob | LaunchedSet | LaunchedTrain | LaunchedMpi, folder: Path) -> None:
    """Let the container of each pod run ``holdfast launch`` with ``RANK``."""
    script = folder / "train.py"
    script.write_text(RANK, encoding="utf-8")
    meeting = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    node = ("--nproc-per-node", "1", "--local-addr", "127.0.0.1", "--lease-timeout", "5s")
    env: list[Json] = [{"name": "HOLDFAST_LAUNCH_KEY", "value": os.urandom(16).hex()}]
    if isinstance(job, LaunchedMpi):
        job.folder = folder
        env.append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}})
        node += ("--node-rank", "$(NODE)")
    elif not isinstance(job, LaunchedTrain):
        node += ("--node-rank", "$(JOB_COMPLETION_INDEX)")
    start = (sys.executable, "-m", "holdfast", "launch")
    command = [str(part) for part in (*start, *meeting, *node, script, folder)]
    job.container = {"command": command, "env": env}
