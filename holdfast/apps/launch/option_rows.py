"""Options of ``holdfast launch``, as argparse takes them."""

import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from holdfast.apps.launch.option_values import (
    STREAMS,
    count,
    duration,
    exit_meanings,
    factor,
    hang_limit,
    node_range,
    port,
    tolerance,
)
from holdfast.apps.launch.progress_watch import HangLimit
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.apps.launch.rendezvous import ON_SIGTERM
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.loss_settings import LONGEST_WINDOW
from holdfast.decisions.restart_rungs import MAX_IN_PLACE, RestartBudget
from holdfast.model.jobs import LossAction

OptionRow = tuple[tuple[str, ...], Mapping[str, Any]]
"""Names and settings of an option, as argparse takes them."""

Options = Sequence[OptionRow]

SIGNALS: Final = {name: signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGKILL")}
"""Signals that ``--shutdown-signal`` accepts."""


def _row(*names: str, **settings: Any) -> OptionRow:
    return names, settings


_BUDGET: Final = RestartBudget()
_NODE_REPORT: Final = "/run/holdfast/report.json"
"""In the agent's default ``report_dir``."""

SUSPECT_ACTIONS: Final = ("none", "exchange")
"""Values of ``--suspect-action``."""

PERMANENT_CAUSE_ACTIONS: Final = ("stop", "restart")
"""Values of ``--permanent-cause-action``."""

LOSS_ACTIONS: Final = tuple(action.value for action in LossAction)
"""Values of ``--loss-action``."""

_IGNORED: Final = "ignored; accepted for compatibility with torchrun"

OPTIONS: Final = (
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
        "--join-timeout", type=duration, default=timedelta(minutes=10), metavar="DURATION",
        help="time to wait for enough launchers, or for the coordinator (default: 10m)",
    ),
    _row(
        "--lease-timeout", type=duration, default=timedelta(seconds=2), metavar="DURATION",
        help="time without a response after which a launcher counts as lost (default: 2s)",
    ),
    _row(
        "--on-sigterm", choices=ON_SIGTERM, default="auto",
        help="response of the node with the coordinator to SIGTERM: stop the job on all nodes, or "
        "leave it, so that the others wait for the next coordinator (default: leave in a pod of "
        "Kubernetes and under holdfast run, else stop)",
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
        "--restart-period", type=duration, default=_BUDGET.period, metavar="DURATION",
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
        "--shutdown-timeout", type=duration, default=timedelta(seconds=15), metavar="DURATION",
        help="time from --shutdown-signal to SIGKILL (default: 15s)",
    ),
    _row(
        "--accelerator-timeout", type=duration, default=timedelta(seconds=50), metavar="DURATION",
        help="time to wait for GPU memory to be released before a restart (default: 50s)",
    ),
    _row(
        "--hang-timeout", type=hang_limit, metavar="DURATION|auto", default=HangLimit(),
        help="restart the ranks if one that has reported steps, in HOLDFAST_PROGRESS_FILE or in a "
        "log in --log-dir, reports no new step within this time; auto: within a time learned from "
        "its steps (default: report it after the learned time, and continue)",
    ),
    _row(
        "--stall-floor", type=duration, default=HangLimit().floor, metavar="DURATION",
        help="minimum of the time that is learned for --hang-timeout (default: 3m)",
    ),
    _row(
        "--stall-start", type=duration, default=HangLimit().start, metavar="DURATION",
        help="report a job on one node as a suspected hang if it reports no step within this time "
        "of its start; 0: never (default: 1h; once known, five times the longest start)",
    ),
    _row(
        "--stall-silence", type=duration, default=HangLimit().silence, metavar="DURATION",
        help="report a job on one node that reports no steps as a suspected hang after this time "
        "without output, CPU time and accelerator activity; 0: never (default: 10m)",
    ),
    _row(
        "--log-rules", metavar="FILE",
        help="restart the ranks by the log rules in FILE (JSON or YAML, with the fields of "
        "HyperPod's logMonitoringConfiguration), the same on all nodes; needs --log-dir",
    ),
    _row(
        "--straggler-factor", type=factor, metavar="FACTOR",
        help="report a rank as a straggler if its own part of a step takes at least FACTOR times "
        "the median of the other ranks; 0: take no samples (default: 1.15, unless "
        "HOLDFAST_PROGRESS_FILE is set)",
    ),
    _row(
        "--straggler-window", type=duration, default=StragglerOptions().window, metavar="DURATION",
        help="duration of one window of samples; a straggler is slower in at least four (default: "
             "40s)",
    ),
    _row(
        "--suspect-action", choices=SUSPECT_ACTIONS, default="none",
        help="exchange: move the ranks on the node of a straggler, or of a rank that hangs in its "
        "kernel or storage, to a hot spare if there is one (default: none)",
    ),
    _row(
        "--permanent-cause-action", choices=PERMANENT_CAUSE_ACTIONS, default="stop",
        help="response if a restart would fail in the same way, such as a missing module before "
        "the first step, or a full disk: stop (fail at once) or restart (default: stop)",
    ),
    _row(
        "--loss-action", choices=LOSS_ACTIONS,
        help="response if a loss that a rank reports is NaN or infinite, or spikes: ask (report "
        "it, and continue), stop, rollback (restart the ranks from the checkpoint before it) or "
        "skip (rollback, and name the step in HOLDFAST_SKIP_STEPS) (default: ask, unless "
        "HOLDFAST_PROGRESS_FILE is set)",
    ),
    _row(
        "--loss-window", type=partial(count, most=LONGEST_WINDOW, least=1), metavar="N",
        default=LossLimits().window,
        help="number of previous losses with whose mean a loss is compared (default: 10)",
    ),
    _row(
        "--loss-tolerance", type=tolerance, default=LossLimits().tolerance, metavar="FACTOR",
        help="treat a loss as a spike if it exceeds the loss before and differs from the mean by "
        "FACTOR times the mean or more; 0: ignore spikes (default: 2)",
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
