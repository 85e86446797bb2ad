"""Words in the interfaces of Slurm, Kubernetes, SageMaker, EC2 and Python packages."""

from enum import StrEnum


class SlurmReason(StrEnum):
    """Leading tokens of a Slurm node's reason: a person's request, or Holdfast's own action."""

    REBOOT = "Action:Reboot"
    REPLACE = "Action:Replace"
    HOLDFAST = "holdfast:"
    """Follows one of the others, or leads, where Holdfast set the reason: it is no request."""


class PodPhase(StrEnum):
    """Values of a pod's ``status.phase``."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodReason(StrEnum):
    """Reasons of the condition ``PodScheduled`` of a pod."""

    UNSCHEDULABLE = "Unschedulable"
    """No node can take it."""


class DeepCheck(StrEnum):
    """SageMaker's ``DeepHealthCheckType``."""

    STRESS = "InstanceStress"
    CONNECTIVITY = "InstanceConnectivity"


class BatchResponse(StrEnum):
    """Lists in the responses of SageMaker's batch operations."""

    SUCCESSFUL = "Successful"
    FAILED = "Failed"


class PluginGroup(StrEnum):
    """Entry-point groups in which packages register extensions."""

    PROVIDERS = "holdfast.providers"
    DETECTORS = "holdfast.detectors"
    CHECKPOINT_FORMATS = "holdfast.checkpoint_formats"


class MachineTag(StrEnum):
    """Tags of EC2 instances and Auto Scaling groups that belong to a cluster."""

    CLUSTER = "holdfast:cluster"
    """Name of the cluster; a group without it is not touched."""
    GROUP = "holdfast:group"
    """Name of the instance group."""
    SCRIPTS = "holdfast:scripts"
    """State of the lifecycle scripts of an instance: ``pending``, ``done`` or why they failed."""
