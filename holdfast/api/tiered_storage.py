"""``TieredStorageConfig``: copies of the checkpoints of a cluster's jobs in a second location."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.api.sagemaker_model import Json

TIERED_STORAGE: Final = "TieredStorageConfig"
_ENABLE: Final = "Enable"


def tier_rejections(request: Json, problem: str) -> Iterator[str]:
    """Problems of a ``TieredStorageConfig`` that the model does not detect.

    Args:
        request: of ``CreateCluster`` or ``UpdateCluster``.
        problem: why this server cannot copy checkpoints; empty if it can.

    """
    if problem and mirrors_checkpoints(request):
        yield f"{TIERED_STORAGE}: Mode is {_ENABLE}, but {problem}"


def mirrors_checkpoints(settings: Mapping[str, Any]) -> bool:
    """Whether settings of a cluster request copies of checkpoints."""
    return bool(settings.get(TIERED_STORAGE, {}).get("Mode") == _ENABLE)
