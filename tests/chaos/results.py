"""Results of random disturbances, as a table and in the file that the documentation shows."""

import fcntl
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.schedules import Kind

RECORDED: Final = Path(__file__).with_name("results.json")
TITLES: Final = {
    "local": "one machine",
    "cluster": "cluster on one machine",
    "slurm": "Slurm",
    "kubernetes": "Kubernetes",
    "nodes": "Kubernetes nodes",
}
MINUTES: Final = "minutes"
ROWS: Final = (MINUTES, "schedules", "broken", "real faults repaired", *map(str, Kind))
"""What is counted, in the order of the table."""

Results = Counter[tuple[str, Kind | str]]
"""How often, by platform and row; for how many minutes."""


def table(results: Results, names: Iterable[str]) -> str:
    """What was done on each platform, as Markdown."""
    return rendered(plain(results, names))


def plain(results: Results, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """The results by platform and row."""
    return {name: {row: results[name, row] for row in ROWS} for name in names}


def rendered(found: Mapping[str, Mapping[str, int]]) -> str:
    """Results by platform and row as Markdown."""
    lines = [f"| | {' | '.join(TITLES[name] for name in found)} |", f"|---|{'---|' * len(found)}"]
    lines += [
        f"| {row} | {' | '.join(str(cells[row]) for cells in found.values())} |" for row in ROWS
    ]
    return "\n".join(lines)


def write_results(results: Results, names: Iterable[str]) -> None:
    """Write the file; platforms that were not disturbed keep their results.

    Processes that disturb other platforms at the same time may write it, too.
    """
    with Path(__file__).open(encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = {**recorded(), **plain(results, names)}
        kept = {name: found[name] for name in TITLES if name in found}
        RECORDED.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def continued(names: Iterable[str]) -> Results:
    """Return the results in the file, to which more are added."""
    found = recorded()
    return Counter(
        {(name, row): found[name][row] for name in names if name in found for row in ROWS}
    )


def recorded() -> dict[str, dict[str, int]]:
    """The results in the file; what a platform was not disturbed by when it was written is 0."""
    text = RECORDED.read_text(encoding="utf-8") if RECORDED.exists() else "{}"
    return {
        name: {row: cells.get(row, 0) for row in ROWS} for name, cells in json.loads(text).items()
    }
