"""What tests found of the fault matrix, compared with the committed results or written to files."""

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobRecord
from tools.fault_matrix import RUNGS
from tools.matrix_results import FAULT_TABLE
from tools.matrix_table import MatrixTable


class Matrix:
    """The cells of one test.

    Args:
        test: file and name of the test.
        folder: for results; None: they are compared with the committed ones.

    """

    def __init__(self, test: str, folder: Path | None) -> None:
        self.test = test
        self.folder = folder

    @property
    def is_recording(self) -> bool:
        """Whether results are written, and not compared."""
        return self.folder is not None

    def record(
        self,
        fault: str,
        column: str,
        found: Mapping[str, Any],
        seconds: Mapping[str, float] | None = None,
        *,
        table: MatrixTable = FAULT_TABLE,
    ) -> None:
        """Write a result, or compare its outcome with the committed one.

        Args:
            fault: row of the table.
            column: column of the table.
            found: outcome; ``job`` is the state of the job, None if it was left alone, and ``rung``
                the rung that its launchers used.
            seconds: from the fault to the end of each phase.
            table: the table; by default the fault matrix.

        """
        assert fault in table.titles
        assert column in table.columns
        assert found.get("rung", "in-place") in RUNGS
        if self.folder is None:
            assert found == table.outcome(fault, column), (
                f"{fault} on {column} is not as in tests/{table.file.name}: {found}; if it should "
                f"be so, run `make matrix ARGS='-k {self.test.rpartition('::')[2]}'` and accept it"
            )
            return
        line: dict[str, Any] = {"table": table.name, "fault": fault, "column": column}
        line["outcome"] = found
        line["test"] = self.test
        if seconds:
            load = os.getloadavg()[0] / (os.cpu_count() or 1)
            rounded = {phase: round(value, 1) for phase, value in seconds.items()}
            line |= {"seconds": rounded, "load": round(load, 1)}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")


def outcome_of(job: JobRecord, **more: Any) -> dict[str, Any]:
    """The outcome in the record of a job."""
    failures = [one.failure for one in job.attempts if one.failure is not None]
    return {
        "job": job.phase.value,
        "attempt": job.attempt,
        "hardware": job.hardware_retries,
        "application": job.app_retries,
        "causes": [one.reason for one in failures],
        **more,
    }


def seconds_of(began: datetime, job: JobRecord, incident: Incident | None) -> dict[str, float]:
    """Seconds from a fault to each phase, of the last restart and of the repair."""
    ends = [job.attempts[-1].stopped_at, job.running_at] if job.attempts else [None, None]
    detected, released = (
        (None, None) if incident is None else (incident.detected_at, incident.ended_at)
    )
    phases = {"detected": detected, "stopped": ends[0], "resumed": ends[1], "released": released}
    return {
        phase: (at - began).total_seconds()
        for phase, at in phases.items()
        if at is not None and at >= began
    }
