"""Command line of ``holdfast launch``: torchrun's options and PET_* variables, and our own."""

import argparse
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from holdfast.apps.launch.option_values import (
    STREAMS,
    count,
    duration,
    exclusions,
    exit_meanings,
    factor,
    hang_limit,
    log_options,
    names_launcher,
    node_range,
    past_job_restarts,
    port,
    slots,
    stragglers,
)
from holdfast.apps.launch.progress_watch import HangLimit
from holdfast.apps.launch.rank_environment import count_gpus
from holdfast.apps.launch.rank_output import LogOptions
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.apps.launch.rendezvous import ON_SIGTERM, Rendezvous, meeting_point, slurm_step
from holdfast.decisions.exit_meanings import EXIT_MEANINGS, ExitMeaning
from holdfast.decisions.restart_rungs import MAX_IN_PLACE, RestartBudget
from holdfast.model.errors import ConfigError

PROGRAM: Final = "holdfast launch"

_DESCRIPTION: Final = (
    "Run the ranks of a training script on this node, and restart them in place after a failure. "
    "Replaces torchrun: it accepts the same options and PET_* variables, and sets the same "
    "variables for the script."
)

OptionRow = tuple[tuple[str, ...], Mapping[str, Any]]
"""Names and settings of an option, as argparse takes them."""

Options = Sequence[OptionRow]

SIGNALS: Final = {name: signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGKILL")}
"""Signals that ``--shutdown-signal`` accepts."""


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
    exchanges_suspects: bool
    """Whether nodes that named evidence makes suspect are exchanged for hot spares."""

    stragglers: StragglerOptions | None
    """How stragglers are found; None: no samples are taken."""

    node_report: str
    """File of the node's agent; empty for none."""

    logs: LogOptions
    warm: WarmScript | None
    """What warm ranks run; None if ranks start cold."""


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
        hang_limit=replace(given.hang_timeout, floor=given.stall_floor, start=given.stall_start),
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
    parser = argparse.ArgumentParser(prog=program, description=_DESCRIPTION, allow_abbrev=False)
    known = environment if environment is not None else {}
    for names, settings in (*_OPTIONS, *more):
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


def _row(*names: str, **settings: Any) -> OptionRow:
    return names, settings


_BUDGET: Final = RestartBudget()
_NODE_REPORT: Final = "/run/holdfast/report.json"
"""In the agent's default ``report_dir``."""

_SUSPECT_ACTIONS: Final = ("none", "exchange")
_IGNORED: Final = "ignored; accepted for compatibility with torchrun"

_OPTIONS: Final = (
    _row(
        "--nproc-per-node", default="1", metavar="N",
        help="number of ranks; auto and gpu: one for each GPU (auto: or one for each CPU); cpu",
    ),
    _row(
        "--nnodes", type=node_range, metavar="MIN[:MAX]",
        help="number of nodes; launchers beyond MIN are hot spares (default: nodes of the Slurm "
        "step, else 1)",
    ),
    _row(
        "--node-rank", type=count, metavar="N",
        help="preferred rank of this node; 0 is the coordinator (default: SLURM_NODEID, else by "
        "order of arrival)",
    ),
    _row(
        "--rdzv-endpoint", default="", metavar="HOST:PORT",
        help="rendezvous address, on one of the nodes (default: --master-addr and --master-port, "
        "else the first node of the Slurm step)",
    ),
    _row(
        "--join-timeout", type=duration, default=timedelta(minutes=10), metavar="TIME",
        help="time to wait for enough launchers, or for the coordinator (default: 10m)",
    ),
    _row(
        "--lease-timeout", type=duration, default=timedelta(seconds=2), metavar="TIME",
        help="time without a response after which a launcher counts as lost (default: 2s)",
    ),
    _row(
        "--on-sigterm", choices=ON_SIGTERM, default="auto",
        help="response of the node with the coordinator to SIGTERM: stop the job on all nodes, or "
        "leave it, so that the others wait for the next coordinator (default: leave in a pod of "
        "Kubernetes, else stop)",
    ),
    _row(
        "--local-addr", default="", metavar="HOST",
        help="address of this node for ranks of other nodes",
    ),
    _row(
        "--max-restarts", type=partial(count, most=MAX_IN_PLACE), metavar="N",
        default=_BUDGET.in_place,
        help="maximum restarts in place within --restart-period (default: 3)",
    ),
    _row(
        "--restart-period", type=duration, default=_BUDGET.period, metavar="TIME",
        help="period in which restarts in place are counted (default: 6h)",
    ),
    _row(
        "--max-total-restarts", type=count, metavar="N",
        help="maximum restarts of all kinds, without a period (default: 50, or --max-restarts "
        "and 10 exchanges of nodes if that is more)",
    ),
    _row(
        "--max-job-restarts", type=count, default=0, metavar="N",
        help="exit with 75 instead of 1 after --max-restarts, so that the platform restarts the "
        "job; counted by HOLDFAST_ATTEMPT or SLURM_RESTART_COUNT (default: 0)",
    ),
    _row(
        "--offender-failures", type=count, default=_BUDGET.offender_failures, metavar="N",
        help="failures of ranks on one node after which a hot spare takes its place; 0: no limit "
        "(default: 3)",
    ),
    _row(
        "--node-report", default=_NODE_REPORT, metavar="FILE",
        help="report of the node's agent: ranks do not restart on a node that is being repaired; "
        f"empty: none (default: {_NODE_REPORT})",
    ),
    _row(
        "--exit-codes", type=exit_meanings, default={}, metavar="CODE=MEANING,...",
        help="meanings of exit codes of ranks: crash, resume, another-device or stop "
        "(default: 16=another-device,17=resume,93=stop)",
    ),
    _row(
        "--shutdown-signal", choices=tuple(SIGNALS), default="SIGTERM",
        help="signal that ends ranks before a restart (default: SIGTERM)",
    ),
    _row(
        "--shutdown-timeout", type=duration, default=timedelta(seconds=15), metavar="TIME",
        help="time from --shutdown-signal to SIGKILL (default: 15s)",
    ),
    _row(
        "--accelerator-timeout", type=duration, default=timedelta(seconds=50), metavar="TIME",
        help="time to wait for GPU memory to be released before a restart (default: 50s)",
    ),
    _row(
        "--hang-timeout", type=hang_limit, metavar="TIME|auto", default=HangLimit(),
        help="restart the ranks if one that has reported steps, in HOLDFAST_PROGRESS_FILE or in a "
        "log in --log-dir, reports no new step within this time; auto: within a time learned from "
        "its steps (default: report it after the learned time, and continue)",
    ),
    _row(
        "--stall-floor", type=duration, default=HangLimit().floor, metavar="TIME",
        help="minimum of the learned time (default: 3m)",
    ),
    _row(
        "--stall-start", type=duration, default=HangLimit().start, metavar="TIME",
        help="time to the first step of a job on one node that is reported as a suspected hang; 0: "
        "none (default: 1h; once known, five times the longest start)",
    ),
    _row(
        "--straggler-factor", type=factor, metavar="FACTOR",
        help="report a rank whose own part of a step takes at least this multiple of that of the "
        "others; 0: take no samples (default: 1.15, unless HOLDFAST_PROGRESS_FILE is set)",
    ),
    _row(
        "--straggler-window", type=duration, default=StragglerOptions().window, metavar="TIME",
        help="duration of one window of samples; a straggler is slower in at least four (default: "
             "40s)",
    ),
    _row(
        "--suspect-action", choices=_SUSPECT_ACTIONS, default="none",
        help="exchange: replace the node of a straggler, or of a rank that hangs in its kernel or "
        "storage, by a hot spare if there is one (default: none)",
    ),
    _row(
        "--warm", action="store_true",
        help="keep a process for each rank that has imported --preload, for the next restart",
    ),
    _row(
        "--preload", default="torch", metavar="MODULE,...",
        help="modules that warm ranks import (default: torch)",
    ),
    _row("--log-dir", default="", metavar="DIR", help="directory of log and error files of ranks"),
    _row(
        "-r", "--redirects", choices=tuple(STREAMS), default="0",
        help="streams that go to files only: 1 stdout, 2 stderr, 3 both",
    ),
    _row(
        "-t", "--tee", choices=tuple(STREAMS), default="",
        help="streams that go to files and the console (default: 3 with --log-dir, else 0)",
    ),
    _row(
        "--local-ranks-filter", default="", metavar="RANK,...",
        help="local ranks whose output is shown (default: all)",
    ),
    _row("-m", "--module", action="store_true", help="run the script as a module"),
    _row("--no-python", action="store_true", help="run a program instead of a Python script"),
    _row("--rdzv-id", default="none", metavar="ID", help="identifier of the job"),
    _row("--role", default="default", help="role of the ranks, for ROLE_NAME and log prefixes"),
    _row(
        "--master-addr", default="", metavar="HOST",
        help="value of MASTER_ADDR with one node (default: 127.0.0.1); else see --rdzv-endpoint",
    ),
    _row(
        "--master-port", type=port, default=0, metavar="PORT",
        help="value of MASTER_PORT with one node (default: a free port for each restart)",
    ),
    _row("--standalone", action="store_true", help="run on this node only"),
    _row("--rdzv-backend", default="", metavar="NAME", help=_IGNORED),
    _row("--rdzv-conf", default="", metavar="KEY=VALUE,...", help=_IGNORED),
    _row("--monitor-interval", default="", metavar="SECONDS", help=_IGNORED),
    _row("--start-method", default="", metavar="NAME", help=_IGNORED),
)  # fmt: skip
"""Options in the order of the help. The last name of each gives its PET_* variable."""


def _unusable(given: argparse.Namespace) -> list[str]:
    choices: Mapping[str, Collection[str]] = {
        "shutdown_signal": SIGNALS, "redirects": STREAMS, "tee": ("", *STREAMS),
        "on_sigterm": ON_SIGTERM, "suspect_action": _SUSPECT_ACTIONS,
    }  # fmt: skip
    problems = [  # argparse does not check a default, and PET_* variables are defaults
        f"PET_{name.upper()}: {getattr(given, name)!r}: expected one of {', '.join(known)}"
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
