"""Kinds of jobs that Holdfast manages."""

from typing import Final

from holdfast.adapters.kubernetes.jobs.hyperpod_job import HyperPodJobs
from holdfast.adapters.kubernetes.jobs.indexed_job import IndexedJobs
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.job_set import JobSets
from holdfast.adapters.kubernetes.jobs.mpi_job import MPIJobs
from holdfast.adapters.kubernetes.jobs.pytorch_job import PyTorchJobs
from holdfast.adapters.kubernetes.jobs.ray_cluster import RayClusters
from holdfast.adapters.kubernetes.jobs.ray_job import RayJobs
from holdfast.adapters.kubernetes.jobs.train_job import TrainJobs

KINDS: Final[tuple[JobKind, ...]] = (
    PyTorchJobs(),
    IndexedJobs(),
    JobSets(),
    MPIJobs(),
    TrainJobs(),
    RayClusters(),
    RayJobs(),
    HyperPodJobs(),
)
"""All kinds of jobs; a kind with pods precedes the kinds that use it as body."""
