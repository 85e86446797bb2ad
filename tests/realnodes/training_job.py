"""Jobs whose ranks are real processes in real pods, each saving its steps in files."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.model.names import JOB_RECORD, Labels
from tests.engines.machine_image import IMAGE

if TYPE_CHECKING:
    from site_of_nodes import Site

FIND_MASTER = """
if [ "$PET_NODE_RANK" = 0 ]; then
    hostname -i > /shared/new
    mv /shared/new /shared/address
fi
while [ ! -e /shared/address ]; do sleep 0.1; done
export PET_MASTER_ADDR=$(cat /shared/address)
"""
"""Finds the first pod without the name of a Service, which not every kind of job has."""

JOBS = "/apis/batch/v1/namespaces/default/jobs"

Object = dict[str, Any]

TRAINING = """
import fcntl, os, pathlib, signal, sys, time
if os.environ.get("IGNORES_SIGTERM"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
rank, attempt = os.environ["JOB_COMPLETION_INDEX"], os.environ["ATTEMPT"] or "1"
folder = pathlib.Path("/shared")
ranks = int(os.environ["RANKS"])
alive = (folder / f"alive-{rank}").open("w")
try:
    fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (folder / f"overlap-{attempt}-{rank}").touch()
    raise
saved = folder / f"saved-{rank}"
step, weights = map(int, saved.read_text().split()) if saved.exists() else (0, 0)
print(f"rank {rank}: attempt {attempt} begins at step {step}", flush=True)
while not (folder / "enough").exists():
    while (folder / f"hangs-{attempt}").exists():
        time.sleep(0.1)
    if (folder / f"eats-{attempt}-{rank}").exists():
        eaten = [bytearray(b"x" * 2**20) for _ in range(2**12)]
    step += 1
    weights = (weights * 31 + step + int(rank)) % 1_000_003
    print(f"step {step}", flush=True)
    if (folder / f"diverges-{attempt}").exists():
        print(f"step: {step}  loss: nan  grad_norm: nan", flush=True)
    (folder / f"attempt-{attempt}-{rank}").write_text(str(step))
    new = folder / f"new-{rank}-{attempt}"
    new.write_text(f"{step} {weights}")
    new.replace(saved)
    pathlib.Path("/tmp/heartbeat").touch()
    time.sleep(0.1)
"""
"""Saves each step, and goes on from there, until the test has seen enough.

The weights of a rank depend on each of its steps.

A rank that begins while the same one of another attempt is alive says so in a file.

A file ``hangs-ATTEMPT`` stops all ranks, ``diverges-ATTEMPT`` makes their loss NaN, and
``eats-ATTEMPT-RANK`` makes one take 4 GiB of memory.
"""


class TrainingJob:
    """An indexed Job with auto-resume, a rank on each of its nodes."""

    kind = "Job"
    collection = JOBS
    selector = "job-name"
    """Label of its pods that has its name."""

    def __init__(self, site: "Site", name: str, ranks: int) -> None:
        self.site = site
        self.name = name
        self.ranks = ranks
        self.folder = site.shared / name
        self.folder.mkdir()
        self.folder.chmod(0o777)

    def body(
        self,
        *,
        annotations: Mapping[str, str] | None = None,
        memory: str = "256Mi",
        near: str = "",
        environment: Mapping[str, str] | None = None,
        **pod: Any,
    ) -> Object:
        """The object; ``near`` is the node that one rank goes to if it takes work."""
        labels = Labels()
        field = {"fieldRef": {"fieldPath": "metadata.annotations['holdfast.dev/attempt']"}}
        known = {"RANKS": str(self.ranks), **(environment or {})}
        container = {
            "name": "trainer",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["python", "-c", TRAINING],
            "env": [
                {"name": "ATTEMPT", "valueFrom": field},
                *({"name": key, "value": value} for key, value in known.items()),
            ],
            "resources": {"limits": {"memory": memory}},
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        }
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"job-name": self.name}},
        }
        name = {"key": "metadata.name", "operator": "In", "values": [near]}
        preferred = {"weight": 100, "preference": {"matchFields": [name]}}
        affinity = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [preferred] * bool(near)
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        }
        spec = {
            "restartPolicy": "Never",
            "nodeSelector": {labels.node_health_status: "Schedulable"},
            "affinity": affinity,
            "containers": [container],
            "volumes": [{"name": "shared", "hostPath": {"path": str(self.folder)}}],
            **pod,
        }
        resumed = {labels.enable_job_auto_resume: "true", "holdfast.dev/app-max-retry-count": "3",
                   labels.job_max_retry_count: "5"}  # fmt: skip
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "annotations": {**resumed, **(annotations or {})}},
            "spec": {
                "completionMode": "Indexed",
                "completions": self.ranks,
                "parallelism": self.ranks,
                "backoffLimit": 0,
                "template": {"spec": spec},
            },
        }

    def submit(self, **changes: Any) -> None:
        self.site.cluster.plane.request("POST", self.collection, self.body(**changes))

    @property
    def pods(self) -> list[Object]:
        return self.site.pods(f"{self.selector}={self.name}")

    @property
    def places(self) -> dict[str, str]:
        """UIDs of pods that run on to their nodes."""
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in self.pods
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def steps(self, attempt: int) -> dict[int, int]:
        """Rank to the last step of an attempt, for ranks that have begun."""
        found = {}
        for rank in range(self.ranks):
            path = self.folder / f"attempt-{attempt}-{rank}"
            with suppress(FileNotFoundError):
                found[rank] = int(path.read_text(encoding="utf-8") or 0)
        return found

    def until_training(self, attempt: int, steps: int = 1) -> None:
        """Wait until all ranks of an attempt run and are at a step."""

        def is_training() -> bool:
            reached = list(self.steps(attempt).values())
            return len(self.places) == len(reached) == self.ranks and min(reached) >= steps

        self.site.until(is_training, f"attempt {attempt} of {self.name}")

    @property
    def has_overlapped(self) -> bool:
        """Whether two attempts ran at the same time."""
        return any(self.folder.glob("overlap-*"))

    @property
    def job(self) -> Object:
        found: Object = self.site.cluster.plane.request("GET", f"{self.collection}/{self.name}")
        return found

    @property
    def record(self) -> Object:
        """What the controller has written of it."""
        record: Object = json.loads(self.job["metadata"]["annotations"][JOB_RECORD])
        return record

    @property
    def has_succeeded(self) -> bool:
        """Whether its operator says so."""
        return bool(self.job["status"].get("succeeded") == self.ranks)

    def delete(self) -> None:
        """Delete it, with its pods."""
        policy = {"propagationPolicy": "Background"}
        self.site.cluster.plane.request("DELETE", f"{self.collection}/{self.name}", policy)

    def finish(self) -> None:
        """Let it complete, with the weights of an undisturbed job."""
        finish(self)
        for rank in range(self.ranks):
            steps, weights = map(int, (self.folder / f"saved-{rank}").read_text("ascii").split())
            assert weights == undisturbed(steps, rank), f"rank {rank} of {self.name}, step {steps}"


def undisturbed(steps: int, rank: int) -> int:
    """Weights of a rank after that many steps of ``TRAINING`` without a disturbance."""
    weights = 0
    for step in range(1, steps + 1):
        weights = (weights * 31 + step + rank) % 1_000_003
    return weights


def finish(*jobs: TrainingJob) -> None:
    """Let jobs complete, all at the same time."""
    for job in jobs:
        (job.folder / "enough").touch()
    for job in jobs:
        job.site.until(lambda job=job: job.has_succeeded, f"{job.name} to complete")
        assert not job.has_overlapped, f"two attempts of {job.name} ran at the same time"
