"""Many random scenarios under all laws: ``python -m holdfast.testing.fuzz --schedules 100000``.

Ends with exit code 1 at the first broken law, after the command that shows it step by step.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Final

import click

from holdfast.testing.laws import LawBroken
from holdfast.testing.schedules import random_scenario
from holdfast.testing.trial import TracedLaws, judge

CHUNK: Final = 250
"""Scenarios between two lines of progress: some seconds' work."""


class Named:
    """Notes on any error within it which scenario it came from."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            replay = f"python -m holdfast.testing.fuzz --replay {self._seed}"
            error.add_note(f"This was seed {self._seed}. See it step by step with:  {replay}")


def judge_seeds(seeds: range) -> int:
    """Judge the scenario of each seed, and count them.

    Raises:
        LawBroken: with a note that says which seed it was.

    """
    for seed in seeds:
        with Named(seed):
            judge(random_scenario(seed))
    return len(seeds)


@click.command()
@click.option("--schedules", default=2000, show_default=True, type=click.IntRange(min=1))
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--replay", type=int, help="Show the scenario of one seed step by step instead.")
def fuzz(schedules: int, first: int, jobs: int, replay: int | None) -> None:
    """Judge random scenarios, each from its own seed."""
    if replay is not None:
        _replay(replay)
        return
    begun_at, done = time.monotonic(), 0
    last = first + schedules
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    for count in _counts(chunks, jobs):
        done += count
        rate = done / (time.monotonic() - begun_at)
        click.echo(f"{done} of {schedules} schedules kept every law, {rate:.0f} a second")


def _counts(chunks: list[range], jobs: int) -> Iterator[int]:
    if jobs == 1:
        yield from map(judge_seeds, chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(judge_seeds, chunks)
        finally:
            pool.shutdown(cancel_futures=True)


def _replay(seed: int) -> None:
    scenario = random_scenario(seed)
    for part in (scenario.policy, scenario.hardware, scenario.mishaps, *scenario.trainings):
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
