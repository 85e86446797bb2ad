"""``holdfast uninstall``: removes what a deleted release left in a cluster."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    confirm_or_abort,
    dry_run_option,
    output_option,
    print_rows,
    yes_option,
)
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.target import TargetPlatform
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.names import LABEL_PREFIX

_LEFTOVERS: Final = "holdfast.apps.kubernetes.leftovers"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRow:
    """Object in the cluster and the result of its removal, as in JSON and YAML output."""

    kind: str
    namespace: str
    name: str
    removes: tuple[str, ...]
    keeps: tuple[str, ...]
    done: bool
    error: str = ""

    @property
    def removed(self) -> str:
        """What is removed, or why the removal failed."""
        if self.error:
            return f"failed: {self.error}"
        return ", ".join(self.removes) or ("" if self.keeps else "the object")


_COLUMNS: Final[Sequence[Column[RemovalRow]]] = (
    Column(title="KIND", cell=lambda row: row.kind),
    Column(title="NAMESPACE", cell=lambda row: row.namespace),
    Column(title="NAME", cell=lambda row: row.name),
    Column(title="REMOVES", cell=lambda row: row.removed, minor=True),
    Column(title="KEEPS", cell=lambda row: "; ".join(row.keeps), minor=True),
)


@examples(
    "holdfast uninstall --platform kubernetes --dry-run",
    "holdfast uninstall --platform kubernetes --yes --output json",
    "holdfast uninstall --platform kubernetes --keep-cordoned --keep-incidents",
)
@click.command()
@click.option(
    "--platform",
    type=click.Choice([place.value for place in TargetPlatform]),
    default=TargetPlatform.KUBERNETES.value,
    show_default=True,
    help="Platform to clean up.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig file.")
@click.option("--context", help="Context of the kubeconfig.  [default: the current context]")
@click.option(
    "--namespace",
    "-n",
    envvar="HOLDFAST_NAMESPACE",
    default="holdfast",
    show_default=True,
    help="Namespace of the controller.",
)
@click.option(
    "--agent-namespace",
    envvar="HOLDFAST_AGENT_NAMESPACE",
    help="Namespace of the agents.  [default: namespace of the controller]",
)
@click.option(
    "--label-prefix",
    default=LABEL_PREFIX,
    show_default=True,
    help="Prefix of labels and the taint: labelPrefix of the chart.",
)
@click.option("--keep-cordoned", is_flag=True, help="Leave nodes that are out of service cordoned.")
@click.option(
    "--keep-incidents", is_flag=True, help="Keep incidents and their CustomResourceDefinition."
)
@click.option("--force", is_flag=True, help="Continue although controllers or agents are active.")
@yes_option
@dry_run_option
@output_option(*LISTS)
def uninstall(
    *, platform: str, yes: bool, dry_run: bool, force: bool, output: str, **given: Any
) -> int:
    """Remove Holdfast's labels, taints and records from a cluster after helm uninstall.

    Removes the labels, annotations, taints, conditions and cordons that Holdfast set on nodes, its
    Leases, deep health checks, state, incidents and their CustomResourceDefinition, and its records
    on jobs; a suspended job that waits for its next attempt is resumed. Settings of other programs
    and people are kept and listed.

    Nodes that Holdfast keeps out of service become schedulable, unless --keep-cordoned is given.

    Exits with 1 while controllers or agents are active, with 3 if something could not be removed.
    """
    _refuse_others(platform)
    cleaner = import_module(_LEFTOVERS).connect(**given)
    with closing(cleaner):
        if active := cleaner.active():
            what = f"still active: {_listed(active)}"
            if not (force or dry_run):
                click.echo(
                    f"holdfast: {what}; nothing was removed. Run helm uninstall, wait one minute"
                    " for their Leases to expire, and retry, or add --force",
                    err=True,
                )
                return ExitCode.FAILED
            click.echo(f"holdfast: {what}; they will write their records again", err=True)
        found = list(cleaner.leftovers())
        going = [one for one in found if one.removes or not one.keeps]
        if going and not dry_run:
            nodes = sum(1 for one in going if one.kind == "Node")
            confirm_or_abort(
                f"Remove Holdfast's records from {len(going)} objects, {nodes} nodes?", yes=yes
            )
        rows = [_row(one, dry_run=dry_run or one not in going) for one in found]
    print_rows(rows, _COLUMNS, output=output, empty="Nothing to remove.")
    return _code(rows, is_planned=dry_run)


def _refuse_others(platform: str) -> None:
    if platform == TargetPlatform.SLURM:
        raise ConfigError(
            "--platform slurm: run holdfast slurm uninstall on each machine of the cluster"
        )
    if platform == TargetPlatform.LOCAL:
        raise ConfigError(
            "--platform local: runs leave only files; stop them with holdfast jobs cancel, then "
            f"delete {default_home()}"
        )


def _row(leftover: Any, *, dry_run: bool) -> RemovalRow:
    row = RemovalRow(
        kind=leftover.kind,
        namespace=leftover.namespace,
        name=leftover.name,
        removes=leftover.removes,
        keeps=leftover.keeps,
        done=False,
    )
    if dry_run:
        return row
    try:
        leftover.remove()
    except BackendError as error:
        click.echo(f"holdfast: {row.kind} {row.name} is not removed: {error}", err=True)
        return replace(row, error=str(error))
    return replace(row, done=True)


def _code(rows: Sequence[RemovalRow], *, is_planned: bool) -> int:
    if is_planned or not any(row.error for row in rows):
        return ExitCode.OK
    return ExitCode.PARTLY_DONE if any(row.done for row in rows) else ExitCode.FAILED


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
