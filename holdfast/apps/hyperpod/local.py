"""Runs on this machine, for HyperPod's commands: a job is a ``holdfast run`` in the background.

A pod is a rank, which is a process of this machine; the container image is ignored.
"""

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from holdfast.adapters.host.commands import run_command
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.lock import is_held
from holdfast.adapters.local.machine import MARK
from holdfast.apps.hyperpod.job_request import ON_FAILURE, JobRequest
from holdfast.apps.hyperpod.port import EXEC_TIME, JobOutput, Json
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.nodes import JobRank
from holdfast.apps.views.not_found import NotFound
from holdfast.apps.views.run_jobs import RunJobs
from holdfast.apps.views.runs import open_runs
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.jobs import JobPhase
from holdfast.model.names import HealthStatus, PodPhase

NAME: Final = "local"
"""Name of the cluster and of its only namespace."""

_RESTARTING: Final = "Restarting"
_STATES: Final[Mapping[str, str]] = {
    JobPhase.WAITING: "Created",
    JobPhase.STARTING: "Created",
    JobPhase.RUNNING: PodPhase.RUNNING,
    JobPhase.STOPPING: _RESTARTING,
    JobPhase.SUCCEEDED: PodPhase.SUCCEEDED,
}
"""States of the training operator by job phase; all other phases are failures."""

_PODS: Final[Mapping[str, str]] = {
    **{phase: phase for phase in PodPhase},
    _RESTARTING: PodPhase.RUNNING,
}
"""Pod phase by state of the job; ``Pending`` for all other states."""

_APP_RETRIES: Final = 3
"""Default of ``holdfast run``; the kubelet restarts containers without limit."""

_START_S: Final = 30
_PAUSE_S: Final = 0.05
_TAIL: Final = 2000
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class LocalHyperPodCluster:
    """A ``HyperPodCluster`` of what runs below a home."""

    home: Path
    defaults: ClassVar[Mapping[str, str]] = {"image": "none", "instance_type": NAME}
    """See ``HyperPodCluster.defaults``."""

    def preview(self, request: JobRequest) -> Json:
        """See ``HyperPodCluster.preview``."""
        command = ["holdfast", *_arguments(request)]
        return {"command": shlex.join(command), "environment": dict(request.environment)}

    def submit(self, request: JobRequest) -> str:
        """See ``HyperPodCluster.submit``: returns when the job exists."""
        run = RunDir(self.home / "runs" / request.name)
        if is_held(run):
            raise ConfigError(
                f"job_name: {request.name} is already running; cancel it, or choose another name"
            )
        is_file = shlex.split(request.command)[-1:] not in (["-m"], ["-c"])
        if is_file and not Path(request.entry_script).is_file():
            raise ConfigError(
                f"entry_script: {request.entry_script} not found in {Path.cwd()}; give its path "
                "from the current directory or its absolute path"
            )
        log = self.home / "hyperpod" / f"{request.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        pid = _spawned([sys.executable, "-m", "holdfast", *_arguments(request)], request, log)
        deadline = time.monotonic() + _START_S
        while not self._exists(request.name):
            ended, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status)
            if ended and code == 0:
                break
            if ended or time.monotonic() > deadline:
                why = f"exited with {code}" if ended else f"did not start within {_START_S} s"
                reported = log.read_text(encoding="utf-8", errors="replace")[-_TAIL:].strip()
                raise BackendError(f"{request.name}: holdfast run {why}: {reported or log}")
            time.sleep(_PAUSE_S)
        return f"started on this machine; log: {log}"

    def jobs(self, selector: str, *, everywhere: bool) -> list[Json]:  # noqa: ARG002 - one place
        """See ``HyperPodCluster.jobs``; runs have no labels."""
        found = [] if selector else RunJobs(self.home).jobs()
        return [
            {
                "Name": job.name,
                "Namespace": NAME,
                "CreationTime": to_plain(job.started_at),
                "State": _state(job),
                "priority": "NA",
            }
            for job in found
        ]

    def job(self, name: str, *, verbose: bool) -> Json:
        """See ``HyperPodCluster.job``."""
        job = self._one(name)
        shown: Json = {
            "Name": job.name,
            "Namespace": NAME,
            "Label": {},
            "CreationTimestamp": to_plain(job.started_at),
            "Status": {
                "state": _state(job),
                "phase": job.phase,
                "reason": job.reason,
                "attempt": job.attempt,
                "step": job.step,
                "retries": job.hardware_retries,
            },
        }
        if verbose:
            spec = {"command": job.command, "nodes": job.nodes, "maxRetries": job.max_retries}
            shown |= {"Kind": "Run", "ApiVersion": "", "Metadata": {}, "Annotations": {}}
            shown["Spec"] = {**spec, "checkpoints": job.checkpoint_dir}
        return shown

    def pods(self, name: str) -> list[Json]:
        """See ``HyperPodCluster.pods``."""
        job = self._one(name)
        return [
            {
                "PodName": _pod(name, rank),
                "Namespace": NAME,
                "Status": _PODS.get(_state(job), PodPhase.PENDING),
                "CreationTime": to_plain(job.started_at),
                "NodeName": job.placement[rank] if rank < len(job.placement) else "",
            }
            for rank in range(job.nodes)
        ]

    def log(self, name: str, pod: str) -> Iterator[bytes]:
        """See ``HyperPodCluster.log``: of the newest attempt."""
        job = self._one(name)
        rank = self._rank(job, pod)
        path = RunDir(Path(job.directory)).log(max(job.attempt, 1), rank)
        with suppress(FileNotFoundError), path.open("rb") as file:  # no output yet
            while piece := file.read(_PIECE):
                yield piece

    def run(self, name: str, pod: str, command: Sequence[str]) -> JobOutput:
        """See ``HyperPodCluster.run``: in the directory of the rank's node, as a part of it."""
        job = self._one(name)
        rank = self._rank(job, pod)
        with RunJobs(self.home).found(name) as known:
            job_rank = JobRank(known.ref, rank)
            node = next((one for one, has in known.run.ranks().items() if has == job_rank), None)
            if node is None:
                raise NotFound(f"{pod} is not running: {name} is {job.phase}")
            machine = next(one.provider_id for one in known.run.nodes() if one.name == node)
            directory = known.run.directory.node(node).path
        done = run_command(
            command, timeout=EXEC_TIME, directory=directory, environment={MARK: machine}
        )
        error = f"exit status {done.status}: {done.stderr.strip()}" if done.status else ""
        return JobOutput(done.stdout, error.rstrip(": "))

    def cancel(self, name: str) -> None:
        """See ``HyperPodCluster.cancel``."""
        RunJobs(self.home).cancel(name, lambda _: None)

    def suspend(self, name: str, *, is_suspended: bool) -> None:
        """See ``HyperPodCluster.suspend``."""
        verb = "suspended" if is_suspended else "unsuspended"
        raise ConfigError(
            f"{name}: jobs on this machine cannot be {verb}; cancel the job and start it again "
            "with the same name to resume from its checkpoint"
        )

    def clusters(self) -> list[Json]:
        """See ``HyperPodCluster.clusters``: nodes of runs have no accelerators of their own."""
        with open_runs(self.home) as known:
            nodes = [node for run in known for node in run.nodes()]
        found: dict[tuple[str, str], int] = {}
        for node in nodes:
            health = node.health_status or HealthStatus.UNSCHEDULABLE
            key = (health, node.deep_check_status or "N/A")
            found[key] = found.get(key, 0) + 1
        instances = [
            {
                "InstanceType": NAME,
                "TotalNodes": count,
                "AcceleratorDevicesAvailable": 0,
                "NodeHealthStatus": health,
                "DeepHealthCheckStatus": deep,
            }
            for (health, deep), count in sorted(found.items())
        ]
        return [{"Cluster": NAME, "Instances": instances}]

    def close(self) -> None:
        """Do nothing; no connection is open."""

    def _one(self, name: str) -> JobStatus:
        return RunJobs(self.home).describe(name).status

    def _exists(self, name: str) -> bool:
        with open_runs(self.home) as known:
            return any(run.name == name for run in known)

    def _rank(self, job: JobStatus, pod: str) -> int:
        names = [_pod(job.name, rank) for rank in range(job.nodes)]
        if pod not in names:
            raise NotFound(f"{job.name}: pod {pod} not found; its pods: {', '.join(names)}")
        return names.index(pod)


def _arguments(request: JobRequest) -> list[str]:
    """Return the arguments of ``holdfast run``; without auto-resume, a node fault ends the job."""
    retries = (1 if request.max_retry is None else request.max_retry) if request.auto_resume else 0
    app_retries = _APP_RETRIES if request.restart_policy in (ON_FAILURE, "Always") else 0
    return [
        "run", "--name", request.name, "--resume", "--nodes", str(request.nodes),
        "--nproc-per-node", str(request.tasks_per_node or 1),
        "--max-retries", str(retries), "--max-app-retries", str(app_retries),
        "--output", "json", "--", *shlex.split(request.command), request.entry_script,
        *request.script_args,
    ]  # fmt: skip


def _spawned(argv: list[str], request: JobRequest, log: Path) -> int:
    """Start a process in a new session, so that it outlives this one; returns its PID."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o666),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {**os.environ, **request.environment}
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)


def _state(job: JobStatus) -> str:
    is_begun = job.attempt > (job.phase == JobPhase.STARTING)
    if is_begun and job.phase in (JobPhase.WAITING, JobPhase.STARTING):
        return _RESTARTING
    return _STATES.get(job.phase, PodPhase.FAILED)


def _pod(name: str, rank: int) -> str:
    return f"{name}-worker-{rank}"
