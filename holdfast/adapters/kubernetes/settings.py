"""How the controller uses a Kubernetes cluster: the table ``kubernetes`` of its configuration."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.adapters.kubernetes.client.leases import LeaseDurations
from holdfast.model.names import GROUP_LABELS, LABEL_PREFIX


class JobKindName(StrEnum):
    """Kind of jobs, as in ``kind`` of its objects."""

    PYTORCH_JOB = "PyTorchJob"
    JOB = "Job"
    JOB_SET = "JobSet"
    MPI_JOB = "MPIJob"
    TRAIN_JOB = "TrainJob"
    RAY_CLUSTER = "RayCluster"
    RAY_JOB = "RayJob"
    HYPERPOD_PYTORCH_JOB = "HyperPodPyTorchJob"


DEFAULT_JOB_KINDS: Final = tuple(
    kind for kind in JobKindName if kind is not JobKindName.HYPERPOD_PYTORCH_JOB
)
"""All but the kind that Holdfast operates itself, which AWS's operator may operate already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The deep health check of a node: a Job that is pinned to it."""

    image: str = ""
    """The image of its container. Without one there is no deep health check, and a node that
    should have one fails it with an error that names this key."""

    command: tuple[str, ...] = ("holdfast", "check", "node")
    """Command of the container. The node passes if it exits with 0; otherwise the last line of its
    output is the reason."""

    pair_command: tuple[str, ...] = (
        "holdfast", "check", "pair", "--rank-from", "kubernetes", "--wait", "5m",
    )  # fmt: skip
    """Command of the two containers of a test between two nodes. The test passes if the container
    with ``JOB_COMPLETION_INDEX`` 1, which measures, exits with 0."""

    service_account: str = ""
    """Service account of the check's pod. If left out, the default one of the namespace, whose
    token the pod then does not get."""

    resources: dict[str, str] = field(default_factory=dict)
    """Limits of the container, such as ``"nvidia.com/gpu" = "8"``."""

    restricted: bool | None = None
    """Whether the container has no capabilities, cannot gain privileges, and can write to ``/tmp``
    and ``/var/tmp`` only. If left out, it is restricted if its command is ``holdfast``: what your
    own command needs is not known, and a node whose check fails is repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings(LeaseDurations):
    """Leader election among controllers."""

    lease: str = "holdfast-controller"
    """Name of the Lease that the leader holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """One Kubernetes cluster."""

    kubeconfig: Path | None = None
    """``$KUBECONFIG``, ``~/.kube/config`` or the service account of the pod if left out."""

    context: str = ""
    """The kubeconfig's current context if left out."""

    namespace: str = "holdfast"
    """Namespace of the controller's state and of its lease."""

    agent_namespace: str = ""
    """Namespace of the agents' leases and of the Jobs of deep health checks; it must admit
    privileged pods. ``namespace`` if left out."""

    label_prefix: str = LABEL_PREFIX
    """Prefix of HyperPod's labels, taint and annotations, without the slash."""

    selector: str = ""
    """Label selector of the nodes to manage; all nodes with an agent if left out."""

    group_labels: tuple[str, ...] = GROUP_LABELS
    """The first of these labels that a node has defines its group: a new node can replace only a
    node of the same group."""

    job_kinds: tuple[JobKindName, ...] = DEFAULT_JOB_KINDS
    """Kinds of jobs to manage. Jobs of other kinds are neither read nor restarted, and the chart
    grants no permission on them. ``TrainJob`` needs ``JobSet``, which has its pods. Pods of
    ``HyperPodPyTorchJob`` are created by the controller: add this kind only where AWS's training
    operator is not installed."""

    check: CheckSettings = field(default_factory=CheckSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    capture_stacks: bool = False
    """Whether to capture the stacks of a job that its log rules find hung, before it is restarted:
    ``py-spy dump`` in its pods, for at most 10 s. Needs py-spy in the job's image and, for the
    controller, the permission to run commands in pods, which the chart grants with this key."""

    read_heartbeats: bool = False
    """Whether jobs may name a heartbeat file that their ranks touch. The controller then runs
    ``stat`` in up to 16 pods of a job, at most twice a minute with the default timeout of 10
    minutes, and the chart grants it the permission to run commands in pods."""

    requests_per_second: float = 400.0
    """Sustained rate limit of requests to the API server. Updating 100 nodes a second takes 300."""

    burst: int = 800
    """Largest burst of requests to the API server."""

    @property
    def agents_in(self) -> str:
        """Namespace of the agents' leases and of the Jobs of deep health checks."""
        return self.agent_namespace or self.namespace

    def __post_init__(self) -> None:
        if self.requests_per_second <= 0:
            raise ValueError(
                f"requests_per_second must be above 0, got {self.requests_per_second:g}"
            )
        if self.burst < 1:
            raise ValueError(f"burst must be 1 or more, got {self.burst}")
        if JobKindName.TRAIN_JOB in self.job_kinds and JobKindName.JOB_SET not in self.job_kinds:
            raise ValueError('job_kinds: "TrainJob" needs "JobSet", which has its pods; add it')
