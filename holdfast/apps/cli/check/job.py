"""``holdfast check prolog``, ``epilog`` and ``health``: programs for ``slurm.conf``.

Slurm drains a node whose Prolog fails, so only broken hardware fails: a tool that is missing, hangs
or is misconfigured is reported, and the check passes. Faults are reported to the controller in a
file, and it repairs the node.
"""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.host.deep_checks.contract import Work
from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.nodes.check_results import Faults, update_verdict
from holdfast.adapters.slurm.nodes.munge import trust_of
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.job import (
    AFTER,
    BEFORE,
    COUNTED,
    check_for_job,
    counted_devices,
    faults_found,
    missing_devices,
    one_at_a_time,
    present_devices,
)
from holdfast.apps.checks.node import lay_out
from holdfast.apps.cli.ending import ending_by_signal
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm.prolog import JOB_NODES
from holdfast.decisions.check_verdicts import verdict_after
from holdfast.detectors.folding import Health, fold
from holdfast.kit.config import load_config
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import HoldfastError
from holdfast.model.names import SlurmReason
from holdfast.model.node_checks import Level, PartResult

_NODE: Final = "SLURMD_NODENAME"
"""Environment variable: node name, set by slurmd for all of its programs."""

_GPUS: Final = "SLURM_JOB_GPUS"
"""Environment variable: indexes of the job's GPUs on this node; unset without any."""

_FRESH_S: Final = 10.0
"""Maximum age of a heartbeat in seconds; an agent writes one twice a second."""

_REPORTED: Final = "verdict.lock"
"""Lock file beside that of the checks, held while a verdict is written. In a directory that each
boot empties, it also shows that there may be one, without access to the shared directory."""

_CONTROL: Final = timedelta(seconds=5)
"""Time limit for a command of Slurm, and for another check that writes its verdict."""

_config = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with the expected devices, as for check node.",
)
_report_dir = click.option(
    "--report-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the agents' reports; findings are reported to the controller.",
)
_lock = click.option(
    "--lock",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("/run/holdfast/check.lock"),
    show_default=True,
    help="Lock file held while a check runs on the node.",
)


def _limit(value: str) -> Callable[[Any], Any]:
    return click.option(
        "--timeout",
        type=Duration(),
        default=value,
        show_default=True,
        help="Time limit for all checks; a check that exceeds it has no result.",
    )


@examples("holdfast check prolog --config /etc/holdfast/checks.toml")
@click.command()
@_config
@_report_dir
@_lock
@_limit("10m")
@click.option(
    "--gpus",
    type=click.Choice(["job", "all"]),
    default="job",
    show_default=True,
    help="GPUs that DCGM tests; use all if jobs get whole nodes without GRES.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="As PrologSlurmctld: state directory of the Holdfast controller.",
)
@click.option(
    "--through",
    type=shlex.split,
    metavar="COMMAND",
    help="As PrologSlurmctld: run the check on each node through this command, such as 'ssh'.",
)
def prolog(
    *,
    config_file: Path | None,
    report_dir: Path | None,
    lock: Path,
    timeout: timedelta,
    gpus: str,
    state_dir: Path | None,
    through: Sequence[str] | None,
) -> int:
    """Check a node before a job (Slurm Prolog or PrologSlurmctld).

    Checks the number and state of all devices, and the GPUs of the job with DCGM diagnostics level
    2; only one such check runs on a node at a time. Exits with 1 if a device is broken: Slurm then
    drains the node and starts the job elsewhere. A tool that is missing or hangs is reported and
    does not fail the check.

    As PrologSlurmctld, on the slurmctld host, it reads the reports of the agents and the records
    of the controller for all nodes of the job, and runs the checks on them with --through. Broken
    nodes are drained; the job waits for other nodes and is not held.
    """
    if not os.environ.get(_NODE) and os.environ.get(JOB_NODES):
        from holdfast.apps.cli.check.slurm_prolog import before_job  # noqa: PLC0415 - not on nodes

        check = ("--gpus", gpus, *(("--config", str(config_file)) if config_file else ()))
        return before_job(os.environ[JOB_NODES], state_dir, through or (), check, timeout)
    chosen = None if gpus == "all" else os.environ.get(_GPUS, "")
    act = partial(_check_for_job, BEFORE, chosen, config_file, report_dir, lock, timeout)
    return _or_pass("prolog", act)


@examples("holdfast check epilog --config /etc/holdfast/checks.toml")
@click.command()
@_config
@_report_dir
@_lock
@_limit("30s")
def epilog(
    *, config_file: Path | None, report_dir: Path | None, lock: Path, timeout: timedelta
) -> int:
    """Check a node after a job (Slurm Epilog), without load.

    Exits with 1 if a device is broken, which drains the node.
    """
    act = partial(_check_for_job, AFTER, "", config_file, report_dir, lock, timeout)
    return _or_pass("epilog", act)


@examples("holdfast check health", "holdfast check health --config /etc/holdfast/checks.toml")
@click.command()
@_config
@_report_dir
@click.option(
    "--agent-dir",
    type=click.Path(path_type=Path),
    default=Path("/run/holdfast"),
    show_default=True,
    help="Value of report_dir in the agent's configuration.",
)
def health(*, config_file: Path | None, report_dir: Path | None, agent_dir: Path) -> int:
    """Check that a Holdfast agent is running (Slurm HealthCheckProgram), in under a second.

    If the agent is running, only devices that a check has reported as missing are counted again.
    Otherwise all are counted; if some are missing, the controller is notified, or the node is
    drained if there is no --report-dir.
    """
    return _or_pass("health", partial(_watched, config_file, report_dir, agent_dir))


class _NoProgress:
    """A ``Watcher`` that shows nothing, as Slurm does not show progress."""

    def begun(self, name: str, plan: Work, left: timedelta) -> None:
        """See ``Watcher.begun``."""

    def ended(self, result: PartResult) -> None:
        """See ``Watcher.ended``."""


def _or_pass(what: str, act: Callable[[str], bool]) -> int:
    """Return the result of a check as an exit code; errors of Holdfast are reported and pass."""
    node = os.environ.get(_NODE, "")
    if not node:
        raise click.UsageError(
            f"{_NODE} is not set; slurmd sets it when this command is its {what}"
        )
    try:
        with ending_by_signal():
            is_good = act(node)
    except HoldfastError as error:
        _report(node, what, f"passed without a result: {error}")
        return ExitCode.OK
    return ExitCode.OK if is_good else ExitCode.FAILED


def _check_for_job(
    names: Iterable[str],
    gpus: str | None,
    config_file: Path | None,
    report_dir: Path | None,
    lock: Path,
    timeout: timedelta,
    node: str,
) -> bool:
    config, clock = _load(config_file), SystemClock()
    with one_at_a_time(lock, timeout) as left:
        parts = check_for_job(
            config, names, gpus=gpus, limit=left, watcher=_NoProgress(), clock=clock
        )
    for part in parts:
        if part.outcome is not Outcome.PASSED:
            _report(node, part.name, f"{part.outcome}: {part.detail}")
    faults = faults_found(parts, clock.now())
    if report_dir is not None and (faults or (lock.parent / _REPORTED).exists()):
        present = counted_devices(lay_out(config, Level.QUICK, names=()).target, parts)
        decide = partial(verdict_after, found=faults, present=present)
        _report_faults(report_dir, node, decide, config.root, lock.parent)
    return not faults


def _watched(config_file: Path | None, report_dir: Path | None, agent_dir: Path, node: str) -> bool:
    is_watched = _is_fresh(agent_dir / "heartbeat")
    is_reported = (agent_dir / _REPORTED).exists()
    if is_watched and not is_reported:
        return True
    config, now = _load(config_file), SystemClock().now()
    target = lay_out(config, Level.QUICK, names=()).target
    found = () if is_watched else missing_devices(target, now)
    faults = fold(Health(), found).faults
    if not is_watched:
        reported = "; ".join(fault.message for fault in faults) or "no device is missing"
        _report(node, "health", f"no agent is running on this node; {reported}")
    if report_dir is not None and (faults or is_reported):
        present = present_devices(target)
        decide = partial(verdict_after, found=faults, present=present, families=(COUNTED,))
        _report_faults(report_dir, node, decide, config.root, agent_dir)
    elif faults:
        slurm = Slurm(None, _CONTROL)
        if not slurm.nodes(node)[node].is_closed:
            slurm.drain_node(node, f"{SlurmReason.HOLDFAST} {faults[0].reason}: {reported}")
    return not faults


def _report_faults(
    report_dir: Path, node: str, faults: Callable[[Faults], Faults], root: Path, run_dir: Path
) -> None:
    """Report faults to the controller; a failure does not affect the result of the check."""
    try:
        trust = trust_of(None)
        with one_at_a_time(run_dir / _REPORTED, _CONTROL):
            now = SystemClock().now()
            update_verdict(report_dir, node, faults, root=root, now=now, trust=trust)
    except HoldfastError as error:
        _report(node, "report", str(error))


def _load(path: Path | None) -> CheckConfig:
    return load_config(path, CheckConfig) if path is not None else CheckConfig()


def _is_fresh(heartbeat: Path) -> bool:
    try:
        return abs(time.time() - heartbeat.stat().st_mtime) < _FRESH_S
    except OSError:
        return False


def _report(node: str, what: str, text: str) -> None:
    click.echo(f"holdfast: {node}: {what}: {text}", err=True)
