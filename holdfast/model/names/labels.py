"""Labels, taint and annotations of nodes, and the values of the labels."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LABEL_PREFIX: Final = "sagemaker.amazonaws.com"
"""HyperPod's prefix; another one can be configured."""

GROUP_LABELS: Final = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    f"{LABEL_PREFIX}/instance-group-name",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)
"""Default labels with a node's group; the first that a node has counts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Keys of a node's labels, taint and public annotations, under one prefix."""

    prefix: str = LABEL_PREFIX

    @property
    def node_health_status(self) -> str:
        """Label with a value of ``HealthStatus``, and the key of the taint."""
        return f"{self.prefix}/node-health-status"

    @property
    def deep_health_check_status(self) -> str:
        """Label with a value of ``DeepCheckStatus``."""
        return f"{self.prefix}/deep-health-check-status"

    @property
    def deep_health_check(self) -> str:
        """Earlier AWS spelling of ``deep_health_check_status``; read, not written."""
        return f"{self.prefix}/deep-health-check"

    @property
    def enable_job_auto_resume(self) -> str:
        """Annotation of a job: ``true`` to restart it after failures of its nodes."""
        return f"{self.prefix}/enable-job-auto-resume"

    @property
    def job_max_retry_count(self) -> str:
        """Annotation of a job: maximum number of restarts after failures of its nodes."""
        return f"{self.prefix}/job-max-retry-count"

    @property
    def fault_types(self) -> str:
        """Label: condition of the worst fault."""
        return f"{self.prefix}/fault-types"

    @property
    def fault_reasons(self) -> str:
        """Label: reason of the worst fault."""
        return f"{self.prefix}/fault-reasons"

    @property
    def fault_details(self) -> str:
        """Annotation: JSON array of ``{timestamp, type, reason, message}``, newest last."""
        return f"{self.prefix}/fault-details"


OWN_PREFIX: Final = "holdfast.dev"
"""Prefix of Holdfast's own annotations and objects."""

PENDING_PATCH: Final = f"{OWN_PREFIX}/pending-patch"
"""Key of the taint of a node that ``AutoPatchConfig`` is about to update when it is idle."""

SCALE_DOWN: Final = f"{OWN_PREFIX}/scale-down"
"""Key of the taint of a node that ``AutoScaling`` is about to remove, as long as it is idle."""

RECORD: Final = f"{OWN_PREFIX}/record"
"""Annotation with the ``NodeRecord``; written by the controller alone."""

REPORT: Final = f"{OWN_PREFIX}/report"
"""Annotation with the agent's ``NodeReport``; written by the agent alone."""

HARDWARE: Final = f"{OWN_PREFIX}/hardware"
"""Annotation with the devices of the node, compressed; written by the agent alone."""

AGENT_HEALTH_STATUS: Final = f"{OWN_PREFIX}/agent-health-status"
"""Annotation: value of the health label that the agent set, so that it is not taken for a person's
request; absent while the agent has set none."""

REQUEST: Final = f"{OWN_PREFIX}/request"
"""Annotation with the ``Request`` of a person, written by commands and the API."""

HOLD: Final = f"{OWN_PREFIX}/hold"
"""Annotation: while present, no repair starts on the node; its value is the reason."""

CORDONED: Final = f"{OWN_PREFIX}/cordoned"
"""Annotation: Holdfast cordoned the node and may uncordon it."""

REPLACES: Final = f"{OWN_PREFIX}/replaces"
"""Annotation: name of the node that this one was ordered to replace."""

CONFIG: Final = f"{OWN_PREFIX}/config"
"""Annotation of Holdfast's own pods: hash of their configuration. In Holdfast's namespace, such
pods are not work: a deep health check does not wait for them."""

FAULT_DETAILS_LIMIT: Final = 20
"""Newest entries kept in the ``fault-details`` annotation, as HyperPod does."""

NODE_NAME_PREFIX: Final = "hyperpod-"
"""Prefix of a node's name: ``hyperpod-i-<17 hex digits>``."""


class HealthStatus(StrEnum):
    """Values of the ``node-health-status`` label."""

    SCHEDULABLE = "Schedulable"
    UNSCHEDULABLE = "Unschedulable"
    PENDING_REBOOT = "UnschedulablePendingReboot"
    PENDING_REPLACEMENT = "UnschedulablePendingReplacement"


PENDING_REPLACE: Final = "UnschedulablePendingReplace"
"""Spelling of ``UnschedulablePendingReplacement`` in a guide of AWS; read as a request, not
written."""


class DeepCheckStatus(StrEnum):
    """Values of the ``deep-health-check-status`` label."""

    IN_PROGRESS = "InProgress"
    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    """Not a value of HyperPod: the check could not be run, so the state of the node is unknown."""
