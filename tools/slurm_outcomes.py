"""What becomes of nodes and jobs on Slurm, as the tests with the real Slurm recorded it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).parents[1] / "tests" / "slurm" / "slurm_outcomes.json"
TITLES: Final = ("What happens", "Slurm", "The node", "The job", "Restarts", "Causes")


def rows() -> Iterator[tuple[str, ...]]:
    """One for each fault and outcome; versions that fare alike share it."""
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
