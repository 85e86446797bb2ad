"""Request fields of the operations on scheduler configurations and compute quotas."""

from collections.abc import Mapping
from typing import Final

from holdfast.api.field_tables import Fields, below, refused, supported

_NO_TAGS: Final = "only clusters have tags; omit it"
_BY_KUEUE: Final = "Kueue applies it if its configuration enables `fairSharing`."
_ONE_VERSION: Final = "Only the present version is kept."

_AMOUNT: Final = {
    **supported("InstanceType"),
    **supported("Count", note="Whole instances: all allocatable resources of the nodes."),
    **supported(
        "Accelerators",
        "VCpu",
        "MemoryInGiB",
        "AcceleratorPartition",
        note="Other resources follow in proportion to those of a node.",
    ),
    **supported("AcceleratorPartition.Type", "AcceleratorPartition.Count"),
}

_SCHEDULER: Final = {
    **supported("PriorityClasses", "PriorityClasses.Weight"),
    **supported(
        "PriorityClasses.Name", note="The name of Kueue's priority class is NAME-priority."
    ),
    **supported("FairShare", note=_BY_KUEUE),
    **supported("IdleResourceSharing", note="Default: `Disabled`."),
}

_QUOTA: Final = {
    **supported("ComputeQuotaResources"),
    **below("ComputeQuotaResources", _AMOUNT),
    **supported("ResourceSharingConfig", "ResourceSharingConfig.Strategy"),
    **supported(
        "ResourceSharingConfig.BorrowLimit", note="Percent of the quota of the team. Default: 50."
    ),
    **supported(
        "ResourceSharingConfig.AbsoluteBorrowLimits",
        note="In place of `BorrowLimit`, for these instance types.",
    ),
    **below("ResourceSharingConfig.AbsoluteBorrowLimits", _AMOUNT),
    **supported("PreemptTeamTasks"),
}

_TARGET: Final = {
    **supported("TeamName", note="`UpdateComputeQuota` cannot change it."),
    **supported("FairShareWeight", note=_BY_KUEUE),
}

_LIST: Final = {
    **supported("CreatedAfter", "CreatedBefore", "NameContains", "ClusterArn", "Status"),
    **supported("SortBy", "SortOrder", "NextToken", "MaxResults"),
}

_NEW: Final = {
    **supported("Name", "ClusterArn", "Description"),
    **refused("Tags", _NO_TAGS),
}

_CHANGE: Final = supported("Description", "TargetVersion")

_SCHEDULER_CONFIG: Final = {
    **supported("SchedulerConfig"),
    **below("SchedulerConfig", _SCHEDULER),
}

_QUOTA_CONFIG: Final = {
    **supported("ComputeQuotaConfig"),
    **below("ComputeQuotaConfig", _QUOTA),
    **supported("ComputeQuotaTarget"),
    **below("ComputeQuotaTarget", _TARGET),
    **supported("ActivationState", note="`Disabled` admits no further jobs; admitted ones run on."),
}

POLICY_FIELDS: Final[Mapping[str, Fields]] = {
    "CreateClusterSchedulerConfig": {**_NEW, **_SCHEDULER_CONFIG},
    "UpdateClusterSchedulerConfig": {
        **supported("ClusterSchedulerConfigId"),
        **_CHANGE,
        **_SCHEDULER_CONFIG,
    },
    "DescribeClusterSchedulerConfig": {
        **supported("ClusterSchedulerConfigId"),
        **supported("ClusterSchedulerConfigVersion", note=_ONE_VERSION),
    },
    "ListClusterSchedulerConfigs": _LIST,
    "DeleteClusterSchedulerConfig": supported("ClusterSchedulerConfigId"),
    "CreateComputeQuota": {**_NEW, **_QUOTA_CONFIG},
    "UpdateComputeQuota": {**supported("ComputeQuotaId"), **_CHANGE, **_QUOTA_CONFIG},
    "DescribeComputeQuota": {
        **supported("ComputeQuotaId"),
        **supported("ComputeQuotaVersion", note=_ONE_VERSION),
    },
    "ListComputeQuotas": _LIST,
    "DeleteComputeQuota": supported("ComputeQuotaId"),
}
"""``operation -> its request fields``, a part of ``REQUEST_FIELDS``."""
