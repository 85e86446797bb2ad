"""The parts of a job object that decide how it restarts, for every kind: pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of an object, with its path such as ``spec.runPolicy``."""

    path: str
    content: Json

    def at(self, key: str) -> "Part":
        """Return the part below a key; empty if the key is missing."""
        return Part(path=f"{self.path}.{key}", content=self.content.get(key) or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """Pods of a job that are created from one template."""

    controller_spec: Part
    """Part with the number of pods and their restart policy."""

    spec: Part
    """Pod spec of the template."""

    ranks: int

    @property
    def containers(self) -> Sequence[Part]:
        """Containers of a pod, without init containers."""
        found = self.spec.content.get("containers") or ()
        return [
            Part(path=f"{self.spec.path}.containers[{index}]", content=one)
            for index, one in enumerate(found)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplates:
    """Pod templates of one job, and its run policy."""

    policy: Part
    """Part that defines how the whole job runs and ends."""

    pods: tuple[PodTemplate, ...] = ()
    elastic: Part = field(default_factory=lambda: Part(path="spec.elasticPolicy", content={}))


def _kubeflow(field_name: str) -> Callable[[Json], JobTemplates]:
    def parts(job: Json) -> JobTemplates:
        spec = Part(path="spec", content=job.get("spec") or {})
        replicas = spec.at(field_name)
        return JobTemplates(
            policy=spec.at("runPolicy"),
            pods=tuple(
                PodTemplate(
                    controller_spec=replicas.at(name),
                    spec=replicas.at(name).at("template").at("spec"),
                    ranks=replica.get("replicas", 1),
                )
                for name, replica in sorted(replicas.content.items())
            ),
            elastic=spec.at("elasticPolicy"),
        )

    return parts


def _indexed(job: Json) -> JobTemplates:
    spec = Part(path="spec", content=job.get("spec") or {})
    return JobTemplates(policy=spec, pods=(_of_job(spec, 1),))


def _job_set(job: Json) -> JobTemplates:
    spec = Part(path="spec", content=job.get("spec") or {})
    return JobTemplates(policy=spec, pods=tuple(_replicated(spec)))


def _replicated(spec: Part) -> Iterator[PodTemplate]:
    for index, one in enumerate(spec.content.get("replicatedJobs") or ()):
        replicated = Part(path=f"{spec.path}.replicatedJobs[{index}]", content=one)
        yield _of_job(replicated.at("template").at("spec"), one.get("replicas", 1))


def _of_job(spec: Part, times: int) -> PodTemplate:
    return PodTemplate(
        controller_spec=spec,
        spec=spec.at("template").at("spec"),
        ranks=times * spec.content.get("parallelism", 1),
    )


def _hyperpod(job: Json) -> JobTemplates:
    spec = Part(path="spec", content=job.get("spec") or {})
    replicas = [
        Part(path=f"spec.replicaSpecs[{index}]", content=one)
        for index, one in enumerate(spec.content.get("replicaSpecs") or ())
    ]
    return JobTemplates(
        policy=spec.at("runPolicy"),
        pods=tuple(
            PodTemplate(
                controller_spec=one,
                spec=one.at("template").at("spec"),
                ranks=one.content.get("replicas", 0),
            )
            for one in replicas
        ),
    )


def _ray(*keys: str) -> Callable[[Json], JobTemplates]:
    def parts(job: Json) -> JobTemplates:
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
        return JobTemplates(
            policy=spec,
            pods=tuple(
                PodTemplate(
                    controller_spec=group, spec=group.at("template").at("spec"), ranks=ranks
                )
                for group, ranks in groups
            ),
        )

    return parts


JOB_TEMPLATES: Final[Mapping[str, Callable[[Json], JobTemplates]]] = {
    "PyTorchJob": _kubeflow("pytorchReplicaSpecs"),
    "MPIJob": _kubeflow("mpiReplicaSpecs"),
    "Job": _indexed,
    "JobSet": _job_set,
    "RayCluster": _ray(),
    "RayJob": _ray("rayClusterSpec"),
    "HyperPodPyTorchJob": _hyperpod,
}
"""Parsers by kind. Kinds that are missing have no pods of their own."""


def job_templates(kind: str, job: Json) -> JobTemplates:
    """Return the pod templates of a job; none for a kind that has no pods of its own.

    Raises:
        ValueError: the object does not have the fields of its kind.

    """
    parts = JOB_TEMPLATES.get(kind)
    if parts is None:
        return JobTemplates(policy=Part(path="spec", content=job.get("spec") or {}))
    try:
        return parts(job)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a {kind}: {error}") from error


def texts(value: Any) -> Iterator[str]:
    """Yield each word of a command or of arguments."""
    for one in value or ():
        yield str(one)
