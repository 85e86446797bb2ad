"""State of a deep health check, as the views of nodes show it. Light: the CLI loads it, too."""

from datetime import datetime
from typing import Final, NamedTuple

from holdfast.model.nodes import CheckResult


class CheckState(NamedTuple):
    """State of the check of a node, as in ``NodeView``."""

    result: CheckResult | None = None
    """Result of its own check; None while it runs, and for a test with another node."""

    began_at: datetime | None = None
    pending: str = ""


NO_CHECK: Final = CheckState()
"""State of a node that is under no check."""
