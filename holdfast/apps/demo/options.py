"""Options of a training job, and the environment of its rank."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from holdfast.apps.demo.corpus import CONTEXT, Corpus
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import ATTEMPT_VARIABLE

_EXIT_CODES = (
    "Exit codes: 0 done; 1 a rank was lost or a file could not be written: start again to resume "
    "from the last checkpoint; 2 wrong input."
)

_DAY = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the job, the same on all ranks."""

    steps: int
    checkpoint_every: int
    seed: int
    batch: int
    hidden: int
    step_time: timedelta
    join_timeout: timedelta
    peer_timeout: timedelta
    checkpoint_dir: Path

    def run_identity(self, trainer: str, corpus: Corpus) -> str:
        """Return what determines the weights after a step, except the number of ranks."""
        return (
            f"{trainer} seed={self.seed} batch={self.batch} hidden={self.hidden} "
            f"context={CONTEXT} text={corpus.digest[:12]}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """Rank, size and addresses of this process, as torchrun, Kubeflow and Holdfast set them."""

    rank: int
    world_size: int
    master_addr: str
    """Address on which rank 0 listens; address and port are unused if there is only one rank."""

    master_port: int
    attempt: int
    progress_file: Path | None
    """File in which rank 0 reports its step; None to report none."""


def parse_options(
    trainer: str, description: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> Options:
    """Parse the command line; on errors, exit with code 2 and a message."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {trainer}", description=description, epilog=_EXIT_CODES
    )
    directory = variables.get("HOLDFAST_CHECKPOINT_DIR") or "checkpoints"
    whole, seconds = _whole_number, _seconds
    for name, kind, default, metavar, meaning in (
        ("--steps", whole(1, 10**9 - 1), "1500", "N", "total number of steps"),
        ("--checkpoint-every", whole(1, 10**9), "50", "N", "steps between checkpoints"),
        ("--seed", whole(0, 2**63 - 1), "0", "N", "seed of weights and batches"),
        ("--batch", whole(1, 65536), "1024", "N", "text windows per step, over all ranks"),
        ("--hidden", whole(1, 16384), "256", "N", "hidden units"),
        (
            "--step-time",
            seconds(0),
            "0",
            "SECONDS",
            "minimum duration of a step, to slow the job down",
        ),
        ("--join-timeout", seconds(0.1), "60", "SECONDS", "timeout for all ranks to join"),
        (
            "--peer-timeout",
            seconds(0.1),
            "30",
            "SECONDS",
            "heartbeat timeout of a rank",
        ),
        ("--checkpoint-dir", Path, directory, "DIR", "directory of checkpoints and final.json"),
    ):
        parser.add_argument(
            name, type=kind, default=default, metavar=metavar, help=f"{meaning} (%(default)s)"
        )
    return Options(**vars(parser.parse_args(arguments)))


def rank_environment(variables: Mapping[str, str]) -> RankEnvironment:
    """Return the rank's environment; without ``WORLD_SIZE`` this process is the only rank.

    Raises:
        ConfigError: with a line for each invalid variable.

    """
    problems: list[str] = []

    def number(name: str, default: int, low: int, high: int) -> int:
        text = variables.get(name) or str(default)
        if text.isascii() and text.isdigit() and low <= int(text) <= high:
            return int(text)
        problems.append(f"{name}={text!r} is not a whole number from {low} to {high}")
        return low

    world_size = number("WORLD_SIZE", 1, 1, 100_000)
    if world_size > 1:
        needed = ("RANK", "MASTER_ADDR", "MASTER_PORT")
        problems += [
            f"{name} is not set, but WORLD_SIZE is {world_size}: start this with `holdfast run`"
            for name in needed
            if not variables.get(name)
        ]
    environment = RankEnvironment(
        rank=number("RANK", 0, 0, world_size - 1),
        world_size=world_size,
        master_addr=variables.get("MASTER_ADDR", ""),
        master_port=number("MASTER_PORT", 1, 1, 65535),
        attempt=number(ATTEMPT_VARIABLE, 1, 1, 1_000_000_000),
        progress_file=Path(file) if (file := variables.get("HOLDFAST_PROGRESS_FILE")) else None,
    )
    if problems:
        raise ConfigError(problems)
    return environment


def _whole_number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return read


def _seconds(low: float) -> Callable[[str], timedelta]:
    def read(text: str) -> timedelta:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not low <= number <= _DAY:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number of seconds from {low} to {_DAY}"
            )
        return timedelta(seconds=number)

    return read
