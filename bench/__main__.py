"""Runs the benchmarks of this folder and prints each figure beside its goal.

What was skipped is listed with the reason; `make bench ARGS=NAME` runs one benchmark.
Exit code: 0 if every goal is met that was measured, 1 if one is missed, 2 for an unknown name.
"""

import argparse
import inspect
import json
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bench.figure import Figure
from holdfast.kit.units import parse_duration

_LINE = "{:<48} {:>10} {:<6} {:>10}  {:>6}"


@dataclass(frozen=True, slots=True)
class Unloadable:
    """A benchmark whose file cannot be loaded here."""

    why: str


Benchmarks = Mapping[str, ModuleType | Unloadable]


def main(argv: list[str], benchmarks: Benchmarks) -> int:
    """Run the named benchmarks, or all that take less than minutes."""
    parser = _parser(benchmarks)
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(benchmarks)
    if unknown:
        parser.error(
            f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(benchmarks)}"
        )
    is_table = options.output == "table"
    if is_table:
        print(_LINE.format("FIGURE", "VALUE", "UNIT", "GOAL", "RATIO"))
    is_met = True
    skipped = {}
    for name in options.names or benchmarks:
        module = benchmarks[name]
        why = _why_skipped(module, is_named=name in options.names)
        if why or isinstance(module, Unloadable):
            skipped[name] = why
            continue
        for figure in _run(module, options):
            print(_table_line(figure) if is_table else _json_line(figure), flush=True)
            is_met = is_met and figure.is_met
    for name, why in skipped.items():
        print(f"skipped {name}: {why}" if is_table else json.dumps({"name": name, "skipped": why}))
    return 0 if is_met else 1


def _parser(benchmarks: Benchmarks) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(benchmarks))
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--quick", action="store_true", help="what can be shorter is")
    parser.add_argument(
        "--samples",
        "--schedules",
        type=int,
        default=0,
        metavar="N",
        help="number of samples, or of random schedules",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of random samples or schedules"
    )
    parser.add_argument(
        "--duration",
        type=parse_duration,
        default=timedelta(),
        metavar="DURATION",
        help="time of a measurement that takes as long as it may, such as 2h",
    )
    parser.add_argument(
        "--factor",
        type=float,
        action="append",
        default=[],
        metavar="F",
        help="slowdown to measure, such as 1.3; may be repeated",
    )
    parser.add_argument(
        "--kind",
        action="append",
        default=[],
        choices=("sleep", "quota", "storage"),
        help="what slows a rank down; may be repeated",
    )
    return parser


def load() -> dict[str, ModuleType | Unloadable]:
    """The benchmarks of this folder by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    modules = {name: _loaded(name) for name in names}
    return {
        name: module
        for name, module in modules.items()
        if isinstance(module, Unloadable) or hasattr(module, "run")
    }


def _loaded(name: str) -> ModuleType | Unloadable:
    try:
        return import_module(f"bench.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("bench", "holdfast", "tools"):
            raise
        why = f"the Python package {error.name} is not installed; make bench installs it"
        return Unloadable(why)


def _why_skipped(module: ModuleType | Unloadable, *, is_named: bool) -> str:
    """Why a benchmark is not run; empty if it is."""
    if isinstance(module, Unloadable):
        return module.why
    only: str = getattr(module, "BY_NAME_ONLY", "")
    if only and not is_named:
        return f"it runs only when named: {only}"
    lacks = getattr(module, "lacks", None)
    return lacks() if lacks is not None else ""


def _run(module: ModuleType, options: argparse.Namespace) -> Iterable[Figure]:
    known = inspect.signature(module.run).parameters
    figures: Iterable[Figure] = module.run(
        **{name: value for name, value in vars(options).items() if name in known}
    )
    return figures


def _table_line(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    goal = "" if figure.goal is None else f"{figure.goal:.4g}"
    line = _LINE.format(figure.name, f"{figure.value:.4g}", figure.unit, goal, ratio)
    return line.rstrip() + ("" if figure.is_met else "  MISSED")


def _json_line(figure: Figure) -> str:
    return json.dumps({**asdict(figure), "ratio": figure.ratio, "met": figure.is_met})


if __name__ == "__main__":
    # Jobs are ended when a benchmark is stopped, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:], load()))
