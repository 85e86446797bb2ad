"""Values of ``holdfast launch``'s options; parsers raise ``ArgumentTypeError``."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.apps.launch.progress_watch import HangLimit
from holdfast.apps.launch.rank_environment import count_gpus
from holdfast.apps.launch.rank_output import LogOptions
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.apps.launch.rendezvous import parse_nodes
from holdfast.decisions.exit_meanings import ExitMeaning, parse_exit_meanings
from holdfast.decisions.loss_faults import LossLimits
from holdfast.kit.units import parse_duration
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import PROGRESS_VARIABLE, LossAction

if TYPE_CHECKING:
    from holdfast.decisions.log_rules import JobLogRule

STREAMS: Final = {"0": 0, "1": 1, "2": 2, "3": 3}
"""Values of ``--redirects`` and ``--tee``."""


def duration(text: str) -> timedelta:
    """Parse a duration; a plain number is seconds, as in torchrun."""
    try:
        return parse_duration(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def count(text: str, most: int = 999_999, least: int = 0) -> int:
    """Parse a whole number from ``least`` to ``most``."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 7
    if not (is_number and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} is not a whole number from {least} to {most}"
        )
    return int(text)


def node_range(text: str) -> str:
    """Check a number or a range of nodes."""
    try:
        parse_nodes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def port(text: str) -> int:
    """Parse a TCP port."""
    number = count(text)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a TCP port")
    return number


def hang_limit(text: str) -> HangLimit:
    """Parse a timeout, or ``auto``; 0 is none."""
    if text == "auto":
        return HangLimit(restarts=True)
    timeout = duration(text)
    return HangLimit(timeout=timeout, restarts=True) if timeout else HangLimit()


def exit_meanings(text: str) -> dict[int, ExitMeaning]:
    """Parse meanings of exit codes."""
    try:
        return parse_exit_meanings(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def factor(text: str) -> float:
    """Parse a factor above 1; 0 turns something off."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number == 0 or 1 < number < math.inf:
        return number
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is neither 0 nor a number above 1")


def tolerance(text: str) -> float:
    """Parse a number from 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 <= number < math.inf:
        return number
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a number from 0")


def loss_limits(given: argparse.Namespace, environment: Mapping[str, str]) -> LossLimits | None:
    """Return when a loss is a fault; whoever sets a progress file watches the losses itself."""
    if given.loss_action is None and PROGRESS_VARIABLE in environment:
        return None
    return LossLimits(
        action=LossAction(given.loss_action or LossAction.ASK),
        window=given.loss_window,
        tolerance=given.loss_tolerance,
    )


def slots(count: str) -> int:
    """Return the number of ranks that ``--nproc-per-node`` requests on this node."""
    if count.isdecimal():
        return int(count)
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = len(list(filter(None, listed.split(",")))) if listed is not None else count_gpus()
    cpus = len(os.sched_getaffinity(0))
    return cpus if count == "cpu" or (count == "auto" and gpus == 0) else max(1, gpus)


def past_job_restarts(environment: Mapping[str, str]) -> int:
    """Return how often the platform has restarted the job."""
    attempt = environment.get("HOLDFAST_ATTEMPT", "")
    if attempt.isdecimal():
        return max(0, int(attempt) - 1)
    count = environment.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def names_launcher(argv: Sequence[str], given: argparse.Namespace) -> bool:
    """Return whether ``--`` precedes the program, which is then a launcher such as torchrun."""
    options = argv[: len(argv) - len(given.arguments) - 1]
    return options[-1:] == ["--"]


def exclusions(given: argparse.Namespace, *, starts_ranks: bool) -> list[str]:
    """Return the options that exclude each other.

    Args:
        given: values of the options.
        starts_ranks: whether the program is a launcher that starts the ranks.

    """
    pairs = [
        ("--module", given.module, "--no-python", given.no_python),
        ("--warm", given.warm, "--no-python", given.no_python),
        ("--module", given.module, "--", starts_ranks),
        ("--warm", given.warm, "--", starts_ranks),
        ("--hang-timeout", given.hang_timeout.restarts, "--", starts_ranks),
        ("--loss-action", given.loss_action, "--", starts_ranks),
        ("--straggler-factor", given.straggler_factor, "--", starts_ranks),
    ]
    return [
        f"{one} and {other} exclude each other"
        for one, is_given, other, is_other_given in pairs
        if is_given and is_other_given
    ]


def log_options(given: argparse.Namespace) -> LogOptions:
    """Return where the output of ranks goes."""
    has_choice = given.tee != "" or given.redirects != "0"
    tee = given.tee or ("3" if given.log_dir and not has_choice else "0")
    shown = given.local_ranks_filter.split(",") if given.local_ranks_filter else []
    return LogOptions(
        directory=given.log_dir,
        to_file=STREAMS[given.redirects],
        to_both=STREAMS[tee],
        shown=frozenset(map(int, shown)),
    )


def stragglers(
    given: argparse.Namespace, environment: Mapping[str, str]
) -> StragglerOptions | None:
    """Return how stragglers are found; whoever sets a progress file watches the ranks itself."""
    factor, window = given.straggler_factor, given.straggler_window
    if factor is None:
        is_watched = PROGRESS_VARIABLE in environment
        return None if is_watched else StragglerOptions(window=window)
    return StragglerOptions(factor=factor, window=window, is_requested=True) if factor else None


def log_rules(given: argparse.Namespace) -> "tuple[JobLogRule, ...]":
    """Return the log rules of the job.

    Raises:
        ConfigError: they have mistakes, or cannot be evaluated.

    """
    if given.log_rules is None:
        return ()
    logs = log_options(given)
    if not logs.directory or logs.to_file | logs.to_both != STREAMS["3"]:
        expected = "--log-dir as well, and both streams in files (--redirects, --tee)"
        raise ConfigError(f"--log-rules: {given.log_rules}: expected {expected}")
    from holdfast.adapters.host.log_rule_file import load_log_rules  # noqa: PLC0415 - with rules only

    return load_log_rules(Path(given.log_rules), "--log-rules")
