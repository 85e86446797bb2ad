"""Compares results of matrices that tests wrote with the committed ones, or commits them.

``python -m tools.matrix_results DIR [--accept]``. Exit code: 0; 1 if a result differs or is slower.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import checkpoint_damage, fault_matrix
from tools.matrix_table import MatrixTable

FAULT_TABLE = MatrixTable(
    "faults",
    {name: fault.title for name, fault in fault_matrix.FAULTS.items()},
    fault_matrix.COLUMNS,
    fault_matrix.RECORDED,
)
DAMAGE_TABLE = MatrixTable(
    "checkpoint-damage",
    checkpoint_damage.DAMAGES,
    tuple(checkpoint_damage.RECORDINGS),
    checkpoint_damage.RECORDED,
)
LOADS_TABLE = MatrixTable(
    "checkpoint-loads",
    checkpoint_damage.DAMAGES,
    tuple(checkpoint_damage.RECORDINGS),
    checkpoint_damage.LOADS,
)
TABLES = {one.name: one for one in (FAULT_TABLE, DAMAGE_TABLE, LOADS_TABLE)}
"""Tables by the name that results state."""

SLOWER = 1.5
"""A phase that takes this many times as long is reported."""

NOISE_S = 1.0
"""Differences below it are not reported: polling and the rounding of timestamps to seconds."""


def results(folder: Path) -> list[dict[str, Any]]:
    """All results in a directory, in the order in which they were written."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()]


def differences(found: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each result that is not as committed, and for each phase that is slower."""
    known = {name: table.recorded() for name, table in TABLES.items()}
    for one in found:
        name = f"{TABLES[one['table']].titles[one['fault']]} on {one['column']}"
        before = known[one["table"]].get(one["fault"], {}).get(one["column"])
        if before is None:
            yield f"{name}: new result"
            continue
        if before["outcome"] != one["outcome"]:
            yield f"{name}: outcome {one['outcome']}, committed {before['outcome']}"
        for phase, value in one.get("seconds", {}).items():
            usual = before.get("seconds", {}).get(phase, value)
            if value > usual * SLOWER and value - usual > NOISE_S:
                yield (
                    f"{name}: {phase} after {value:g} s at load {one['load']:g}, "
                    f"committed {usual:g} s at load {before['load']:g}"
                )


def accept(found: list[dict[str, Any]]) -> Iterator[str]:
    """Write results into the committed files, and yield the names of these."""
    for table in TABLES.values():
        own = [one for one in found if one["table"] == table.name]
        if not own:
            continue
        known = table.recorded()
        for one in own:
            cell = {
                key: value for key, value in one.items() if key not in ("fault", "column", "table")
            }
            known.setdefault(one["fault"], {})[one["column"]] = cell
        rows = {
            row: {column: known[row][column] for column in table.columns if column in known[row]}
            for row in table.titles
            if row in known
        }
        table.file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        yield table.file.name


def main(argv: list[str]) -> int:
    """Compare, or commit."""
    folder = Path(argv[0])
    found = results(folder)
    changed = list(differences(found))
    print(f"{len(found)} results in {folder}, {len(changed)} differences")
    for line in changed:
        print(line)
    if "--accept" in argv:
        print(f"Wrote {', '.join(accept(found)) or 'nothing'}; run `make reference`.")
        return 0
    if changed:
        print("If they should be so, run: make matrix-accept")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
