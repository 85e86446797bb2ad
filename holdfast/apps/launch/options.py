"""Command line of ``holdfast launch``: torchrun's options and PET_* variables, and our own."""

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.apps.launch.option_rows import (
    LOSS_ACTIONS,
    OPTIONS,
    PERMANENT_CAUSE_ACTIONS,
    SIGNALS,
    SUSPECT_ACTIONS,
    Options,
)
from holdfast.apps.launch.option_values import (
    STREAMS,
    exclusions,
    log_options,
    log_rules,
    loss_limits,
    names_launcher,
    past_job_restarts,
    slots,
    stragglers,
)
from holdfast.apps.launch.progress_watch import HangLimit
from holdfast.apps.launch.rank_environment import count_gpus
from holdfast.apps.launch.rank_output import LogOptions
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.apps.launch.rendezvous import ON_SIGTERM, Rendezvous, meeting_point, slurm_step
from holdfast.decisions.exit_meanings import EXIT_MEANINGS, ExitMeaning
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.restart_rungs import RestartBudget
from holdfast.model.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.decisions.log_rules import JobLogRule

PROGRAM: Final = "holdfast launch"

_DESCRIPTION: Final = (
    "Run the ranks of a training script on this node, and restart them in place after a failure. "
    "Replaces torchrun: it accepts the same options and PET_* variables, and sets the same "
    "variables for the script."
)
_EPILOG: Final = (
    "DURATION is a number with a unit, such as 500ms, 90s, 15m or 1h30m; a number without a unit "
    "is seconds, as in torchrun."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmScript:
    """What warm ranks run."""

    script: str
    arguments: tuple[str, ...]
    is_module: bool
    preload: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of a launch."""

    script_file: str = ""
    """Python script to run; empty for a module or a program."""

    command: tuple[str, ...]
    run_id: str
    role: str
    slots: int
    """Number of ranks on this node."""

    starts_ranks: bool = False
    """Whether the command is a launcher such as torchrun, one for each node, that starts them."""

    address: str
    """Address at which ranks of other nodes reach those of this one; empty: that of the connection
    to the coordinator."""

    master_port: int
    """Fixed MASTER_PORT; 0: a free port for each round."""

    node_rank: int
    """Preferred node rank."""

    rendezvous: Rendezvous | None
    """Where launchers meet; None for one node."""

    budget: RestartBudget
    meanings: Mapping[int, ExitMeaning]
    shutdown_signal: int
    grace: timedelta
    accelerator_timeout: timedelta
    hang_limit: HangLimit
    log_rules: "tuple[JobLogRule, ...]"
    """Log lines that show a hang by their absence, or a failure."""

    losses: LossLimits | None
    """When a loss is a fault, and what follows; None: losses are not watched."""

    stops_on_permanent_cause: bool
    """Whether the job fails at once if a restart would fail in the same way."""

    exchanges_suspects: bool
    """Whether nodes that named evidence makes suspect are exchanged for hot spares."""

    stragglers: StragglerOptions | None
    """How stragglers are found; None: no samples are taken."""

    node_report: str
    """File of the node's agent; empty for none."""

    logs: LogOptions
    warm: WarmScript | None
    """What warm ranks run; None if ranks start cold."""


def _hang_limit(given: argparse.Namespace) -> HangLimit:
    limit: HangLimit = given.hang_timeout
    return replace(
        limit,
        floor=given.stall_floor,
        start=given.stall_start,
        silence=given.stall_silence,
    )


def parse(
    argv: Sequence[str], environment: Mapping[str, str], program: str = PROGRAM, more: Options = ()
) -> LaunchOptions:
    """Return the options of a command line and of PET_* variables; see ``command_line_parser``.

    Raises:
        ConfigError: each problem names the option, its value and what was expected.

    """
    given = command_line_parser(environment, program, more).parse_args(list(argv))
    starts_ranks = names_launcher(argv, given)
    problems = [*exclusions(given, starts_ranks=starts_ranks), *_unusable(given)]
    if problems:
        raise ConfigError(problems)
    step = slurm_step(environment)
    rendezvous = meeting_point(given, environment, step)
    rank = given.node_rank if given.node_rank is not None else (step.node_rank if step else 0)
    return LaunchOptions(
        command=_command(given, starts_ranks=starts_ranks),
        run_id=given.rdzv_id,
        role=given.role,
        slots=1 if starts_ranks else slots(given.nproc_per_node),
        starts_ranks=starts_ranks,
        address=given.local_addr or ("" if rendezvous else given.master_addr or "127.0.0.1"),
        master_port=0 if rendezvous else given.master_port,
        node_rank=rank,
        rendezvous=rendezvous,
        budget=RestartBudget(
            in_place=given.max_restarts,
            period=given.restart_period,
            total=given.max_total_restarts,
            job_restarts=max(0, given.max_job_restarts - past_job_restarts(environment)),
            offender_failures=given.offender_failures,
        ),
        meanings={**EXIT_MEANINGS, **given.exit_codes},
        shutdown_signal=SIGNALS[given.shutdown_signal],
        grace=given.shutdown_timeout,
        accelerator_timeout=given.accelerator_timeout,
        hang_limit=_hang_limit(given),
        log_rules=log_rules(given),
        losses=None if starts_ranks else loss_limits(given, environment),
        stops_on_permanent_cause=given.permanent_cause_action == "stop",
        exchanges_suspects=given.suspect_action == "exchange",
        stragglers=None if starts_ranks else stragglers(given, environment),
        node_report=given.node_report,
        logs=log_options(given),
        script_file="" if given.module or given.no_python or starts_ranks else given.script,
        warm=_warm_script(given),
    )


def command_line_parser(
    environment: Mapping[str, str] | None = None, program: str = PROGRAM, more: Options = ()
) -> argparse.ArgumentParser:
    """Return the parser of the command line, with PET_* variables as defaults and ``more``."""
    parser = argparse.ArgumentParser(
        prog=program, description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    known = environment if environment is not None else {}
    for names, settings in (*OPTIONS, *more):
        forms = [form for name in names for form in dict.fromkeys((name, _underscored(name)))]
        variable = f"PET_{names[-1].removeprefix('--').replace('-', '_').upper()}"
        values = dict(settings)
        if variable in known:
            is_flag = values.get("action") == "store_true"
            values["default"] = known[variable] == "1" if is_flag else known[variable]
        parser.add_argument(*forms, **values)
    parser.add_argument(
        "script",
        help="script, module (-m) or program (--no-python); after --: a launcher such as torchrun, "
        "one for each node, that starts the ranks",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser


def _underscored(name: str) -> str:
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name


def _unusable(given: argparse.Namespace) -> list[str]:
    choices: Mapping[str, Collection[str | None]] = {
        "shutdown_signal": SIGNALS, "redirects": STREAMS, "tee": ("", *STREAMS),
        "on_sigterm": ON_SIGTERM, "suspect_action": SUSPECT_ACTIONS,
        "permanent_cause_action": PERMANENT_CAUSE_ACTIONS,
        "loss_action": (None, *LOSS_ACTIONS),
    }  # fmt: skip
    problems = [  # argparse does not check a default, and PET_* variables are defaults
        f"PET_{name.upper()}: {getattr(given, name)!r}: expected one of "
        f"{', '.join(filter(None, known))}"
        for name, known in choices.items()
        if getattr(given, name) not in known
    ]
    named = {"auto", "gpu", "cpu"}
    count = given.nproc_per_node
    if count not in named and not (count.isascii() and count.isdecimal() and 0 < int(count) < 4096):
        problems.append(f"--nproc-per-node: {count!r}: expected 1 to 4095, auto, gpu or cpu")
    if count == "gpu" and count_gpus() == 0:
        problems.append("--nproc-per-node: gpu: this node has no NVIDIA GPU; give a number")
    ranks = given.local_ranks_filter.split(",") if given.local_ranks_filter else []
    if not all(one.isascii() and one.isdecimal() for one in ranks):
        problems.append(f"--local-ranks-filter: {given.local_ranks_filter!r}: expected ranks: 0,2")
    return problems


def _command(given: argparse.Namespace, *, starts_ranks: bool) -> tuple[str, ...]:
    if given.no_python or starts_ranks:
        return given.script, *given.arguments
    python = (sys.executable, "-u")
    return *python, *(("-m",) if given.module else ()), given.script, *given.arguments


def _warm_script(given: argparse.Namespace) -> WarmScript | None:
    if not given.warm:
        return None
    return WarmScript(
        script=given.script,
        arguments=tuple(given.arguments),
        is_module=given.module,
        preload=tuple(given.preload.split(",")),
    )
