"""Jobs of Kubeflow and JobSet whose pods train one model with PyTorch's DDP."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_job import TrainingJob

from holdfast.model.names import Labels
from tests.effort import variants
from tests.engines.machine_image import IMAGE

Object = dict[str, Any]

TRAINING = Path(__file__).with_name("ddp_training.py")
_START = Path(__file__).parents[1] / "engines/python_start"
"""What each Python of the pods runs first."""

MEMBER = "tests.holdfast.dev/ranks-of"
"""Label of the pods of a job that have a rank: not of a launcher of MPI."""

RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"

_OF_PYTHON = ("start", "packages")
"""Names of the folders that a container imports modules from."""

_NEVER = 2**31 - 1
"""Backoff limit that no job reaches: its operator does not fail it."""

_AWAITS_END = "while [ ! -e /shared/result ]; do sleep 0.2; done"
"""What the launcher runs in place of ``mpirun``, whose ranks the workers start themselves."""


@dataclass(frozen=True, slots=True)
class Saves:
    """Directory of checkpoints on a disk, and how they are saved."""

    disk: Path
    name: str
    how: str
    """``torch``: by rank 0; ``dcp``: by all ranks."""


class OperatorJob(TrainingJob):
    """A job of two ranks, each in a pod of its own that ``ddp_training.py`` runs in.

    It is as ``holdfast jobs doctor`` wants it: its operator does not fail it itself.
    """

    api_version: str
    selector = MEMBER
    rank_field: str
    """Field of a pod that has its rank."""

    container = "pytorch"
    """Name of the container of a rank that its operator looks for."""

    messages = "FallbackToLogsOnError"
    """Where its containers leave the reasons of their exits."""

    program = "python /shared/train.py"
    module_path = "/start:/packages"
    """``PYTHONPATH`` of that program."""

    guarded_rank = "$POD"
    """Rank of what its program is, for the guard of its checkpoints."""

    saves: Saves | None = None
    """Where each checkpoint gets a name of its own; None: there is one, which is replaced."""

    def body(self, **changes: Any) -> Object:
        """See ``TrainingJob.body``."""
        labels = Labels()
        resumed = {labels.enable_job_auto_resume: "true", labels.job_max_retry_count: "5",
                   "holdfast.dev/app-max-retry-count": "3"}  # fmt: skip
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name, "annotations": resumed},
            "spec": self.spec(self._template(**changes)),
        }

    def spec(self, template: Object) -> Object:
        """The ``spec`` of its kind."""
        raise NotImplementedError

    @property
    def has_succeeded(self) -> bool:
        """See ``TrainingJob.has_succeeded``."""
        conditions = self.job.get("status", {}).get("conditions") or ()
        done = {one["type"] for one in conditions if one["status"] == "True"}
        return bool(done & {"Succeeded", "Completed", "Complete"})

    @property
    def digests(self) -> dict[str, str]:
        """Its last step, and the digest of the weights after it."""
        return _digests(self.folder)

    def loaded(self, attempt: int) -> set[int]:
        """The steps that the ranks of an attempt loaded, one unless they differ."""
        files = (self.folder / f"loaded-{attempt}-{rank}" for rank in range(self.ranks))
        return {int(file.read_text(encoding="utf-8")) for file in files}

    def kill(self, rank: int) -> None:
        """End a rank with SIGKILL, from outside of its pod."""
        [found] = processes(f"RANK_OF={self.name}/{rank}")
        os.kill(found, signal.SIGKILL)

    def _template(self, near: str = "", memory: str = "1Gi") -> Object:
        return {"metadata": {"labels": {MEMBER: self.name}}, "spec": self._pod(near, memory)}

    def _pod(self, near: str, memory: str) -> Object:
        name = {"key": "metadata.name", "operator": "In", "values": [near]}
        preferred = {"weight": 100, "preference": {"matchFields": [name]}}
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {MEMBER: self.name}},
        }
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {Labels().node_health_status: "Schedulable"},
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [preferred] * bool(near)
                },
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
            },
            "containers": [self._container(memory)],
            "volumes": [
                {"name": name, "hostPath": {"path": str(path)}}
                for name, path in self._folders.items()
            ],
        }

    @property
    def _folders(self) -> dict[str, Path]:
        """Folders of this machine that its containers have, by their names there."""
        disk = {} if self.saves is None else {"disk": self.saves.disk}
        return {"shared": self.folder, "start": _START, "packages": _packages(), **disk}

    def _container(self, memory: str) -> Object:
        return {
            "name": self.container,
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "terminationMessagePolicy": self.messages,
            "command": ["sh", "-c", f'export RANK_OF="$JOB/$POD" && exec {self._command}'],
            "env": [
                *_fields(ATTEMPT="metadata.annotations['holdfast.dev/attempt']",
                         POD=self.rank_field),
                *_values(JOB=self.name, RANKS=str(self.ranks), FOLDER="/shared",
                         PYTHONPATH=self.module_path),
                *(() if self.saves is None else _values(SAVES=self.saves.how)),
            ],
            "resources": {"limits": {"memory": memory}},
            "volumeMounts": [
                {"name": name, "mountPath": f"/{name}", "readOnly": name in _OF_PYTHON}
                for name in self._folders
            ],
        }  # fmt: skip

    @property
    def _command(self) -> str:
        if self.saves is None:
            return self.program
        guard = f"holdfast checkpoint guard /disk/{self.saves.name} --rank {self.guarded_rank}"
        own = f"env --unset PYTHONPATH {guard} --job $JOB --attempt ${{ATTEMPT:-1}}"
        return f"{own} -- env PYTHONPATH=$PYTHONPATH {self.program}"

    def submit(self, **changes: Any) -> None:
        """See ``TrainingJob.submit``."""
        (self.folder / "train.py").write_text(TRAINING.read_text("utf-8"), encoding="utf-8")
        super().submit(**changes)


class PyTorchJob(OperatorJob):
    """Of workers only, which need not wait until the name of a master can be resolved."""

    kind = "PyTorchJob"
    api_version = "kubeflow.org/v1"
    collection = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    rank_field = "metadata.labels['training.kubeflow.org/replica-index']"

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``."""
        worker = {"replicas": self.ranks, "restartPolicy": "OnFailure", "template": template}
        return {"pytorchReplicaSpecs": {"Worker": worker}}


class JobSet(OperatorJob):
    """Of Jobs with a pod each."""

    kind = "JobSet"
    api_version = "jobset.x-k8s.io/v1alpha2"
    collection = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    rank_field = "metadata.labels['jobset.sigs.k8s.io/job-index']"

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``."""
        job = {"completions": 1, "parallelism": 1, "backoffLimit": _NEVER, "template": template}
        node = {"name": "node", "replicas": self.ranks, "template": {"spec": job}}
        return {"replicatedJobs": [node]}


class MPIJob(OperatorJob):
    """Whose launcher only waits."""

    kind = "MPIJob"
    api_version = "kubeflow.org/v2beta1"
    collection = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
    rank_field = "metadata.labels['training.kubeflow.org/replica-index']"

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``."""
        pod = template["spec"]
        [worker] = pod["containers"]
        waits = {**worker, "name": "launcher", "command": ["sh", "-c", _AWAITS_END], "env": []}
        launcher = {**pod, "affinity": {}, "containers": [waits]}
        return {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": launcher}},
                "Worker": {"replicas": self.ranks, "template": template},
            }
        }


class TrainJob(OperatorJob):
    """Of a runtime of its own, which has what the nodes of this cluster need.

    Its containers leave no termination messages, so reasons are found in their logs.
    """

    kind = "TrainJob"
    api_version = "trainer.kubeflow.org/v1alpha1"
    collection = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
    rank_field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    container = "node"
    messages = "File"

    def spec(self, template: Object) -> Object:
        """See ``OperatorJob.spec``."""
        reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"}
        return {
            "runtimeRef": {**reference, "name": self.name},
            "trainer": {"numNodes": self.ranks},
        }

    def submit(self, **changes: Any) -> None:
        """See ``TrainingJob.submit``."""
        runtime = training_runtime(self.name, self._template(**changes), self.ranks)
        self.site.cluster.plane.request("POST", RUNTIMES, runtime)
        super().submit(**changes)

    def delete(self) -> None:
        """See ``TrainingJob.delete``."""
        super().delete()
        self.site.cluster.plane.request("DELETE", f"{RUNTIMES}/{self.name}")


KINDS = (PyTorchJob, MPIJob, JobSet, TrainJob)
SOME_KINDS = variants(KINDS)
"""All kinds; in a quick run half of them, as a rank with PyTorch takes 5 s of a processor to start.
With ``OTHER_KINDS``, each kind is tested with a fault of a rank, one of a node and a full disk."""

OTHER_KINDS = variants((MPIJob, PyTorchJob, TrainJob, JobSet))
"""All kinds; in a quick run those that ``SOME_KINDS`` lacks."""


def training_runtime(name: str, template: Object, nodes: int) -> Object:
    """A TrainingRuntime for PyTorch whose pods have a template, one on each node."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"backoffLimit": _NEVER, "template": template}
    node = {"name": "node", "template": {"metadata": {"labels": step}, "spec": job}}
    return {
        "apiVersion": TrainJob.api_version,
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": nodes, "torch": {"numProcPerNode": 1}},
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }


def undisturbed(folder: Path, steps: int, ranks: int = 2) -> dict[str, str]:
    """Digests of the weights after each step of a training that nothing interrupts."""
    known = {"RANKS": str(ranks), "FOLDER": str(folder), "ATTEMPT": "1", "STEPS": str(steps)}
    started = [
        subprocess.Popen(
            [sys.executable, TRAINING], env={**os.environ, **known, "RANK_OF": f"alone/{rank}"}
        )
        for rank in range(ranks)
    ]
    assert [one.wait(600) for one in started] == [0] * ranks
    return _digests(folder)


def _digests(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "result").read_text(encoding="utf-8"))
    return found


def _packages() -> Path:
    """Folder of the packages of this machine's PyTorch."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


def _fields(**paths: str) -> list[Object]:
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in paths.items()
    ]


def _values(**values: str) -> list[Mapping[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def processes(*marks: str) -> Iterator[int]:
    """Processes of this machine, in any container, that have variables in their environment."""
    wanted = {mark.encode() for mark in marks}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if wanted <= {*(entry / "environ").read_bytes().split(b"\0")}:
                    yield int(entry.name)
