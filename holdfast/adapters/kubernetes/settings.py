"""How the controller uses a Kubernetes cluster: the table ``kubernetes`` of its configuration."""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.adapters.kubernetes.client.leases import LeaseDurations
from holdfast.model.names import LABEL_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The deep health check of a node: a Job that is pinned to it."""

    image: str = ""
    """The image of its container. Without one there is no deep health check, and a node that
    should have one fails it with a word on what to set."""

    command: tuple[str, ...] = ("holdfast", "check", "node")
    """What the container runs; the node passes if it ends with 0, and its last line says why not
    otherwise."""

    pair_command: tuple[str, ...] = (
        "holdfast", "check", "pair", "--rank-from", "kubernetes", "--wait", "5m",
    )  # fmt: skip
    """What the containers of a test between two nodes run, one on each. In the one that measures,
    whose ``JOB_COMPLETION_INDEX`` is 1, the test passes if it ends with 0."""

    service_account: str = ""
    """Of its pod; the namespace's default if left out."""

    resources: dict[str, str] = field(default_factory=dict)
    """Limits of the container, such as ``"nvidia.com/gpu" = "8"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings(LeaseDurations):
    """How several controllers agree on one that acts."""

    lease: str = "holdfast-controller"
    """The name of the Lease that the one holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """One Kubernetes cluster."""

    kubeconfig: Path | None = None
    """``$KUBECONFIG``, ``~/.kube/config`` or the service account of the pod if left out."""

    context: str = ""
    """The kubeconfig's current context if left out."""

    namespace: str = "holdfast"
    """Where the controller keeps its state and its lease."""

    agent_namespace: str = ""
    """Where the agents keep their leases, and where the Jobs of deep health checks run; it must
    admit privileged pods. ``namespace`` if left out."""

    label_prefix: str = LABEL_PREFIX
    """Before the slash of HyperPod's labels, taint and annotations."""

    selector: str = ""
    """A label selector: only such nodes are looked after. All that have an agent if left out."""

    group_labels: tuple[str, ...] = (
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/nodegroup",
        f"{LABEL_PREFIX}/instance-group-name",
        "alpha.eksctl.io/nodegroup-name",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
        "node.kubernetes.io/instance-type",
    )
    """The first of these labels that a node has says which group it belongs to: a new node is
    taken for the replacement of another of its group only."""

    check: CheckSettings = field(default_factory=CheckSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    capture_stacks: bool = False
    """Whether a job that hangs by its log rules has its stacks captured before it is restarted:
    ``py-spy dump`` in its pods, 10 s at most. Needs py-spy in the job's image, and for the
    controller the right to run commands in pods, which the chart gives it then."""

    read_heartbeats: bool = False
    """Whether jobs may name a file that their ranks touch as they get on. The controller then runs
    ``stat`` in their pods, up to 16 of a job and at most twice a minute for the usual timeout of
    10 minutes, and the chart gives it the right to run commands in pods."""

    requests_per_second: float = 400.0
    """How many requests the API server gets in the long run. 100 nodes a second take 300."""

    burst: int = 800
    """How many it gets at once."""

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
