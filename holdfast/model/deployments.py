"""How and when the software of machines is updated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """Number of machines that are updated at once."""

    value: int
    is_percentage: bool = False
    """Whether the value is a percentage of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """How a software update proceeds: ``DeploymentConfig``."""

    batch: BatchSize | None = None
    """None for all machines of the group."""

    rollback_batch: BatchSize | None = None
    """None for the same number as ``batch``."""

    bake: timedelta = timedelta(0)
    """Time for which each batch must run without failure before the next one starts."""

    alarms: tuple[str, ...] = ()
    """Names of the alarms that roll the update back."""


class PatchingStrategy(StrEnum):
    """SageMaker's ``ClusterPatchingStrategy``, without ``DrainFirst``."""

    WHEN_IDLE = "WhenIdle"
    """Cordon all nodes, and patch each when no pod is left on it."""

    WHEN_ALL_IDLE = "WhenAllIdle"
    """Cordon all nodes, and patch them when no pod is left on any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patching:
    """Automatic updates to newer images: ``AutoPatchConfig``."""

    strategy: PatchingStrategy
    deployment: Deployment = field(default_factory=Deployment)
    idle_window: timedelta = timedelta(hours=24)
    """Time to wait for nodes to become idle; SageMaker has the same default."""

    next_at: datetime | None = None
    """Time of the next patch: requested, or set when one is found."""

    image: str = ""
    """Image of the next patch; empty if none is known."""

    tried: str = ""
    """Image of the last patch that was begun; it is not begun again."""

    config: Mapping[str, object] = field(default_factory=dict)
    """Requested ``DeploymentConfig``."""
