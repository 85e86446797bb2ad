"""Many random scenarios under all laws: ``python -m tests.simulation.fuzz --schedules 100000``.

Ends with exit code 1 at the first broken law, after the command that shows it step by step.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final

import click

from holdfast.adapters.sim.scenario import Scenario
from holdfast.model.jobs import Placing
from tests.simulation.laws import LawBroken
from tests.simulation.schedules import random_scenario, scheduled_scenario, with_pairs
from tests.simulation.trial import TracedLaws, judge

CHUNK: Final = 250
"""Scenarios between two lines of progress: some seconds' work."""

SCENARIOS: Final[Mapping[Placing, Callable[[int], Scenario]]] = {
    Placing.HOLDFAST: random_scenario,
    Placing.SCHEDULER: scheduled_scenario,
}


def scenario_of(seed: int, placing: Placing, *, pairs: bool) -> Scenario:
    """The scenario of a seed, its jobs placed so, with tests between nodes or without."""
    scenario = SCENARIOS[placing](seed)
    return with_pairs(scenario, seed) if pairs else scenario


class Named:
    """Notes on any error within it which scenario it came from."""

    def __init__(self, seed: int, placing: Placing, *, pairs: bool) -> None:
        self._seed = seed
        self._placing = placing
        self._more = " --pairs" if pairs else ""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            replay = f"--replay {self._seed} --placing {self._placing}{self._more}"
            error.add_note(
                f"This was seed {self._seed}, jobs placed by {self._placing}. See it step by step "
                f"with:  python -m tests.simulation.fuzz {replay}"
            )


def judge_seeds(seeds: range, placing: Placing = Placing.HOLDFAST, *, pairs: bool = False) -> int:
    """Judge the scenario of each seed, as ``scenario_of`` gives it, and count them.

    Raises:
        LawBroken: with a note that names the seed.

    """
    for seed in seeds:
        with Named(seed, placing, pairs=pairs):
            judge(scenario_of(seed, placing, pairs=pairs))
    return len(seeds)


@click.command()
@click.option("--schedules", default=2000, show_default=True, type=click.IntRange(min=1))
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--replay", type=int, help="Show the scenario of one seed step by step instead.")
@click.option(
    "--placing",
    type=click.Choice([one.value for one in Placing]),
    default=Placing.HOLDFAST.value,
    show_default=True,
    help="Who places the jobs.",
)
@click.option("--pairs", is_flag=True, help="With tests between nodes.")
def fuzz(
    *, schedules: int, first: int, jobs: int, replay: int | None, placing: str, pairs: bool
) -> None:
    """Judge random scenarios, each from its own seed."""
    if replay is not None:
        _replay(scenario_of(replay, Placing(placing), pairs=pairs))
        return
    begun_at, done = time.monotonic(), 0
    last = first + schedules
    judged = partial(judge_seeds, placing=Placing(placing), pairs=pairs)
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    for count in _counts(judged, chunks, jobs):
        done += count
        rate = done / (time.monotonic() - begun_at)
        click.echo(f"{done} of {schedules} schedules kept every law, {rate:.0f} a second")


def _counts(judged: Callable[[range], int], chunks: list[range], jobs: int) -> Iterator[int]:
    if jobs == 1:
        yield from map(judged, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(judged, chunks)
        finally:
            pool.shutdown(cancel_futures=True)


def _replay(scenario: Scenario) -> None:
    for part in (
        scenario.policy,
        scenario.hardware,
        scenario.controller_faults,
        *scenario.trainings,
    ):
        click.echo(str(part))
    judge(scenario, TracedLaws(click.echo))
    click.echo("every law was kept")


def main() -> None:
    """Run the command and end with its exit code."""
    try:
        fuzz()
    except LawBroken as broken:
        click.echo(f"A law was broken: {broken}", err=True)
        for note in getattr(broken, "__notes__", ()):
            click.echo(note, err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
