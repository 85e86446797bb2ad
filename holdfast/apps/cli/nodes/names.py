"""Names of commands on nodes, for messages."""

from typing import Final

RESET_BREAKER: Final = "holdfast nodes reset-breaker"
