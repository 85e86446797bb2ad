"""Runs the benchmarks of this folder and prints each figure beside its goal.

Exit code: 0 if every goal is met, 1 if one is missed, 2 for an unknown name.
"""

import argparse
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bench.figure import Figure

_LINE = "{:<48} {:>10} {:<6} {:>10}  {:>6}"


def main(argv: list[str], benchmarks: Mapping[str, ModuleType]) -> int:
    """Run the named benchmarks, or all that take less than minutes."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(benchmarks))
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--quick", action="store_true", help="what can be shorter is")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(benchmarks)
    if unknown:
        parser.error(
            f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(benchmarks)}"
        )
    chosen = options.names or [name for name in benchmarks if not _is_by_name(benchmarks[name])]
    is_table = options.output == "table"
    if is_table:
        print(_LINE.format("FIGURE", "VALUE", "UNIT", "GOAL", "RATIO"))
    is_met = True
    for name in chosen:
        for figure in _run(benchmarks[name], quick=options.quick):
            print(_table_line(figure) if is_table else _json_line(figure), flush=True)
            is_met = is_met and figure.is_met
    return 0 if is_met else 1


def load() -> dict[str, ModuleType]:
    """The benchmarks of this folder by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    modules = {name: import_module(f"bench.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


def _run(module: ModuleType, *, quick: bool) -> list[Figure]:
    can_be_quick = "quick" in inspect.signature(module.run).parameters
    figures: list[Figure] = module.run(quick=quick) if can_be_quick else module.run()
    return figures


def _is_by_name(module: ModuleType) -> bool:
    return getattr(module, "BY_NAME_ONLY", False)


def _table_line(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    line = _LINE.format(
        figure.name, f"{figure.value:.4g}", figure.unit, f"{figure.goal:.4g}", ratio
    )
    return line.rstrip() + ("" if figure.is_met else "  MISSED")


def _json_line(figure: Figure) -> str:
    return json.dumps({**asdict(figure), "ratio": figure.ratio, "met": figure.is_met})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], load()))
