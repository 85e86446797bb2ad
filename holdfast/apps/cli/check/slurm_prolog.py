"""``holdfast check prolog`` as PrologSlurmctld: told and passed is what cannot be found out."""

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
"""For a node to be reached, and to tell what its check found."""


def before_job(
    nodes: str,
    state_dir: Path | None,
    through: Sequence[str],
    check: Sequence[str],
    timeout: timedelta,
) -> int:
    """Check the nodes that a job was given.

    Args:
        nodes: as Slurm writes them.
        state_dir: what the controller keeps.
        through: the command that reaches a node; empty if none does.
        check: options of the check there.
        timeout: for that check.

    """
    try:
        names = expand(nodes)
        with closing(open_store(state_dir)) as store:
            broken = _look(store, names, through, check, timeout)
            for one in broken:
                _report(f"{one.node}: {one.reason}: {one.why}")
            _close(HeadProlog(store), broken)
    except (HoldfastError, ValueError) as error:
        _report(f"passed without a result: {error}")
        return ExitCode.OK
    return ExitCode.FAILED if broken else ExitCode.OK


def _look(
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
        except HoldfastError as error:  # the job is not to begin there all the same
            _report(str(error))


def _report(text: str) -> None:
    click.echo(f"holdfast: prolog: {text}", err=True)
