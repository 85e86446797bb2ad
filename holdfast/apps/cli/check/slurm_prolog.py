"""``holdfast check prolog`` as PrologSlurmctld; errors are reported, and the check passes."""

import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.nodes.state import SlurmStore
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.slurm.nodes import open_store
from holdfast.apps.slurm.prolog import HeadProlog, Remote, UnfitNode, found_there
from holdfast.kit.units import format_duration
from holdfast.model.errors import HoldfastError

_GRACE: Final = timedelta(seconds=30)
"""Time in addition to the check, to connect to a node and to return the result."""


def before_job(
    nodes: str,
    state_dir: Path | None,
    through: Sequence[str],
    check: Sequence[str],
    timeout: timedelta,
) -> int:
    """Check the nodes that are allocated to a job; returns the exit code.

    Args:
        nodes: host list of Slurm.
        state_dir: state directory of the controller; None for the default.
        through: command that runs another on a node; empty to use known faults only.
        check: options of the check on the node.
        timeout: timeout of the check on the node.

    """
    try:
        names = expand(nodes)
        with closing(open_store(state_dir)) as store:
            broken = _find_broken(store, names, through, check, timeout)
            for one in broken:
                _report(f"{one.node}: {one.reason}: {one.why}")
            _close(HeadProlog(store), broken)
    except (HoldfastError, ValueError) as error:
        _report(f"passed without a result: {error}")
        return ExitCode.OK
    return ExitCode.FAILED if broken else ExitCode.OK


def _find_broken(
    store: SlurmStore,
    names: Sequence[str],
    through: Sequence[str],
    check: Sequence[str],
    timeout: timedelta,
) -> list[UnfitNode]:
    broken = [*HeadProlog(store).known(names, SystemClock().now())]
    known = {one.node for one in broken}
    if not through:
        return broken
    program = Path(sys.executable).with_name("holdfast")
    argv = (
        "env", "SLURMD_NODENAME={node}", str(program), "check", "prolog", *check,
        "--timeout", format_duration(timeout), "--report-dir", store.places().report_dir,
    )  # fmt: skip
    remote = Remote(through=tuple(through), check=argv, limit=timeout + _GRACE)
    for found in found_there([name for name in names if name not in known], remote):
        if isinstance(found, UnfitNode):
            broken.append(found)
        else:
            _report(f"passed without a result: {found}")
    return broken


def _close(head: HeadProlog, broken: Sequence[UnfitNode]) -> None:
    for one in broken:
        try:
            head.close(one)
        except HoldfastError as error:  # the job must not start on the node anyway
            _report(str(error))


def _report(text: str) -> None:
    click.echo(f"holdfast: prolog: {text}", err=True)
