"""Times and outcomes of faults on real nodes, for the fault matrix."""

import time
from collections.abc import Callable
from typing import Any

from site_of_nodes import Site
from training_job import TrainingJob

from tests.engines.matrix import Matrix
from tools.fault_matrix import NODES


class Phases:
    """Seconds from a fault to each thing that followed."""

    def __init__(self, site: Site, matrix: Matrix) -> None:
        self._site = site
        self._matrix = matrix
        self._began = time.monotonic()
        self._orders = 0
        self.seconds: dict[str, float] = {}

    def begin(self) -> None:
        """The fault happens now."""
        self._orders = len(self._site.owner.orders)
        self.seconds = {}
        self._began = time.monotonic()

    @property
    def orders(self) -> list[tuple[str, str]]:
        """Action and node of the orders that came since."""
        return [(one.action, one.node) for one in self._site.owner.orders[self._orders :]]

    def reach(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until something holds, and note when."""
        self._site.until(condition, what)
        self.seconds[what] = time.monotonic() - self._began

    def record(self, fault: str, job: TrainingJob | None = None, *, phase: str = "running") -> None:
        """Put what came of a fault into the matrix; of the nodes alone if there is no job.

        Args:
            fault: row of the matrix.
            job: the job, once it is in the phase.
            phase: a value of ``JobPhase``.

        """
        done = {"reboot": "rebooted", "replace": "replaced"}
        node = ", ".join(dict.fromkeys(done[action] for action, _ in self.orders))
        found: dict[str, Any] = {"job": "", "node": node}
        if job is not None:
            self._site.until(lambda: job.record["phase"] == phase, f"the job: {phase}")
            record = job.record
            found |= {
                "job": record["phase"],
                "attempt": record["attempt"],
                "hardware": record.get("hardware_retries", 0),
                "application": record.get("app_retries", 0),
                "causes": [
                    one["failure"]["reason"]
                    for one in record["attempts"]
                    if one["failure"] is not None  # None: its operator ended it
                ],
            }
        kind = "Job" if job is None else job.kind
        self._matrix.record(fault, f"{NODES}/{kind}", found, self.seconds)
