"""Outcomes of nodes and jobs on Slurm, recorded by tests with real Slurm."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).parents[1] / "tests" / "slurm" / "slurm_outcomes.json"
TITLES: Final = ("Case", "Slurm", "Node", "Job", "Restarts", "Causes")


def rows() -> Iterator[tuple[str, ...]]:
    """One row per fault and outcome; versions with the same outcome share it."""
    for row in json.loads(RECORDED.read_text(encoding="utf-8")):
        alike: dict[str, list[str]] = {}
        for version, outcome in row["slurm"].items():
            alike.setdefault(json.dumps(outcome), []).append(version)
        for outcome, versions in alike.items():
            yield row["fault"], ", ".join(versions), *_cells(json.loads(outcome))


def _cells(outcome: dict[str, Any]) -> tuple[str, ...]:
    attempt, restarts = outcome["attempt"], outcome["restarts"]
    spent = "" if restarts is None else str(restarts)
    job = outcome["job"] + ("" if attempt is None else f", attempt {attempt}")
    causes = (one if " " in one else f"`{one}`" for one in dict.fromkeys(outcome["reasons"]))
    return outcome["node"], job, spent, ", ".join(causes)
