"""How the ranks of a job are launched on local machines."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.decisions.hangs import HangLimits
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.step_times import StallLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Launch settings of the ranks of a job."""

    argv: Sequence[str]
    nproc_per_node: int
    checkpoint_dir: Path
    master_port: int | None = None
    """None for a free port, a different one for each attempt."""

    hang_limits: HangLimits = field(default_factory=HangLimits)
    """How long the job may report no step."""

    log_rules: tuple[JobLogRule, ...] = ()
    """Log lines that show a hang by their absence, or a failure."""

    stall_limits: StallLimits = field(default_factory=StallLimits)
    """When a pause between two steps is reported as a suspected hang."""

    loss_limits: LossLimits = field(default_factory=LossLimits)
    """When a reported loss is a fault, and what follows."""

    straggler_factor: float = 0
    """Excess of a rank's own time over the other ranks' that is reported; 0 takes no samples."""

    directory: Path = field(default_factory=Path.cwd)
    """Working directory of the ranks."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Further environment variables of the ranks."""
