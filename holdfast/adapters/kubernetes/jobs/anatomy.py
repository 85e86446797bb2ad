"""Where the parts of a job object are that decide how it restarts: pure, for all kinds alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something of an object, and its path there, such as ``spec.runPolicy``."""

    path: str
    content: Json

    def at(self, key: str) -> "Part":
        """What is below a key; empty if nothing is."""
        return Part(path=f"{self.path}.{key}", content=self.content.get(key) or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Pods of a job that are made from one template."""

    maker: Part
    """What says how many there are, and how they are restarted."""

    spec: Part
    """Of the pods."""

    ranks: int

    @property
    def containers(self) -> Sequence[Part]:
        """Those that run together."""
        found = self.spec.content.get("containers") or ()
        return [
            Part(path=f"{self.spec.path}.containers[{index}]", content=one)
            for index, one in enumerate(found)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """The parts of one job."""

    policy: Part
    """What says how the job as a whole runs and ends."""

    pods: tuple[Pods, ...] = ()
    elastic: Part = field(default_factory=lambda: Part(path="spec.elasticPolicy", content={}))


def _kubeflow(field_name: str) -> Callable[[Json], Anatomy]:
    def parts(job: Json) -> Anatomy:
        spec = Part(path="spec", content=job.get("spec") or {})
        replicas = spec.at(field_name)
        return Anatomy(
            policy=spec.at("runPolicy"),
            pods=tuple(
                Pods(
                    maker=replicas.at(name),
                    spec=replicas.at(name).at("template").at("spec"),
                    ranks=replica.get("replicas", 1),
                )
                for name, replica in sorted(replicas.content.items())
            ),
            elastic=spec.at("elasticPolicy"),
        )

    return parts


def _indexed(job: Json) -> Anatomy:
    spec = Part(path="spec", content=job.get("spec") or {})
    return Anatomy(policy=spec, pods=(_of_job(spec, 1),))


def _job_set(job: Json) -> Anatomy:
    spec = Part(path="spec", content=job.get("spec") or {})
    return Anatomy(policy=spec, pods=tuple(_replicated(spec)))


def _replicated(spec: Part) -> Iterator[Pods]:
    for index, one in enumerate(spec.content.get("replicatedJobs") or ()):
        replicated = Part(path=f"{spec.path}.replicatedJobs[{index}]", content=one)
        yield _of_job(replicated.at("template").at("spec"), one.get("replicas", 1))


def _of_job(spec: Part, times: int) -> Pods:
    return Pods(
        maker=spec,
        spec=spec.at("template").at("spec"),
        ranks=times * spec.content.get("parallelism", 1),
    )


def _ray(*keys: str) -> Callable[[Json], Anatomy]:
    def parts(job: Json) -> Anatomy:
        spec = Part(path="spec", content=job.get("spec") or {})
        cluster = spec
        for key in keys:
            cluster = cluster.at(key)
        workers = cluster.content.get("workerGroupSpecs") or ()
        groups = [
            (cluster.at("headGroupSpec"), 1),
            *(
                (Part(path=f"{cluster.path}.workerGroupSpecs[{index}]", content=one), ranks)
                for index, one in enumerate(workers)
                for ranks in (one.get("replicas", 1),)
            ),
        ]
        return Anatomy(
            policy=spec,
            pods=tuple(
                Pods(maker=group, spec=group.at("template").at("spec"), ranks=ranks)
                for group, ranks in groups
            ),
        )

    return parts


ANATOMIES: Final[Mapping[str, Callable[[Json], Anatomy]]] = {
    "PyTorchJob": _kubeflow("pytorchReplicaSpecs"),
    "MPIJob": _kubeflow("mpiReplicaSpecs"),
    "Job": _indexed,
    "JobSet": _job_set,
    "RayCluster": _ray(),
    "RayJob": _ray("rayClusterSpec"),
}
"""By kind. Those that are missing have no pods of their own."""


def anatomy_of(kind: str, job: Json) -> Anatomy:
    """The parts of a job; without any pods for a kind that has none of its own.

    Raises:
        ValueError: the object is not what its kind says.

    """
    parts = ANATOMIES.get(kind)
    if parts is None:
        return Anatomy(policy=Part(path="spec", content=job.get("spec") or {}))
    try:
        return parts(job)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a {kind}: {error}") from error


def texts(value: Any) -> Iterator[str]:
    """All words of a command or of arguments."""
    for one in value or ():
        yield str(one)
