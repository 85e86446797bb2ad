"""Outcomes of jobs on Kubernetes, recorded by tests with the real operators."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).parents[1] / "tests" / "kubernetes" / "job_outcomes.json"
TITLES: Final = ("Case", "Kinds", "Result", "Causes", "Retries used", "Events")


def rows() -> Iterator[tuple[str, ...]]:
    """One row per fault and outcome; kinds with the same outcome share it."""
    for row in json.loads(RECORDED.read_text(encoding="utf-8")):
        alike: dict[str, list[str]] = {}
        for kind, outcome in row["kinds"].items():
            alike.setdefault(json.dumps(outcome), []).append(kind)
        for outcome, kinds in alike.items():
            yield row["fault"], ", ".join(kinds), *_cells(json.loads(outcome))


def _cells(outcome: dict[str, Any]) -> tuple[str, ...]:
    if outcome["phase"] is None:
        end, spent = "left alone", ""
    else:
        end = f"{outcome['phase']}, attempt {outcome['attempt']}"
        spent = f"hardware {outcome['hardware']}, application {outcome['application']}"
    causes = ", ".join(f"`{one}`" for one in dict.fromkeys(outcome["causes"]))
    return end, causes, spent, ", ".join(f"`{one}`" for one in outcome["events"])
