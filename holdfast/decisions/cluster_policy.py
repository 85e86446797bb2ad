"""How much patience there is with clusters that people ask for."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPolicy:
    """How clusters are brought about."""

    retry_failed: timedelta = timedelta(minutes=10)
    """How long a machine that failed is left as it is, so that somebody can look at it, before
    another one is tried. HyperPod, too, tries about every 10 minutes."""

    provision_timeout: timedelta = timedelta(hours=3)
    """For so long nodes may be missing before a change is taken back. HyperPod's figure for the
    least number of nodes of a group."""

    batch_timeout: timedelta = timedelta(hours=3)
    """For so long a batch of a software update may take until all its nodes run; then the update is
    taken back. As ``provision_timeout``."""

    def __post_init__(self) -> None:
        for key in ("retry_failed", "provision_timeout", "batch_timeout"):
            if getattr(self, key) <= timedelta(0):
                raise ValueError(f"{key} must be longer than 0s, got {getattr(self, key)}")
