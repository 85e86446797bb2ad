"""Which launchers are of one run: pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunName:
    """What a run is known by at a rendezvous endpoint, whose key may be that of other runs, too."""

    run_id: str = "none"
    """Value of ``--rdzv-id``."""

    step: str = ""
    """Slurm step in which all launchers of the run are; empty if some may be in another one."""

    def is_of(self, other: "RunName") -> bool:
        """Return whether both are names of one run.

        A launcher without a step may replace one that was lost with its node.
        """
        is_other_step = self.step and other.step and self.step != other.step
        return self.run_id == other.run_id and not is_other_step

    def __str__(self) -> str:
        step = f" in Slurm step {self.step}" if self.step else ""
        return f"the job with --rdzv-id {self.run_id[:80]!r}{step}"
