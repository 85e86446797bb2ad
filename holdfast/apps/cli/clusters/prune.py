"""``holdfast clusters prune``: removes the files of deleted clusters."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import completion
from holdfast.apps.cli.output import (
    RESULTS,
    confirm_or_abort,
    dry_run_option,
    is_document,
    output_option,
    print_document,
    yes_option,
)
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.deleted_clusters import DeletedCluster, deleted_clusters, remove
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.kit.units import counted

_deleted_names = completion(
    lambda _: dict.fromkeys(one.cluster for one in deleted_clusters(default_home()))
)
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


@examples(
    "holdfast clusters prune --dry-run",
    "holdfast clusters prune --older-than 30d --yes",
    "holdfast clusters prune ml-cluster --output json --yes",
)
@click.command()
@click.argument("name", nargs=-1, shell_complete=_deleted_names)
@click.option(
    "--older-than",
    type=Duration(),
    help="Remove only clusters that were deleted at least this long ago.",
)
@yes_option
@dry_run_option
@output_option(*RESULTS)
def prune(
    *, name: tuple[str, ...], older_than: timedelta | None, yes: bool, dry_run: bool, output: str
) -> None:
    """Remove the logs, state and checkpoints of clusters on this machine that were deleted.

    NAME selects the deleted clusters of that name. Clusters that exist, and checkpoints elsewhere
    (--checkpoint-dir), are unchanged.
    """
    chosen = _chosen(name, older_than)
    verb = "would be removed" if dry_run else "removed"
    if not dry_run and chosen:
        whole = _sized(sum(one.size_bytes for one in chosen))
        confirm_or_abort(
            f"Remove {counted(len(chosen), 'deleted cluster')} with all checkpoints ({whole})?",
            yes=yes,
        )
    for one in chosen:
        if not dry_run:
            remove(one)
        if not is_document(output):
            click.echo(
                f"{one.cluster}: {verb}: {one.directory} ({_sized(one.size_bytes)}, "
                f"{counted(one.jobs, 'job')})"
            )
    if is_document(output):
        print_document({"removed": [] if dry_run else chosen, "found": chosen}, output)
    elif not chosen:
        click.echo("There is no deleted cluster to remove.", err=True)


def _chosen(names: Sequence[str], older_than: timedelta | None) -> list[DeletedCluster]:
    found = deleted_clusters(default_home())
    for name in names:
        known = list(dict.fromkeys(one.cluster for one in found))
        if name not in known:
            raise NotFound(no_such("deleted cluster", name, known))
    latest = SystemClock().now() - (older_than or timedelta(0))
    return [
        one for one in found if (not names or one.cluster in names) and one.deleted_at <= latest
    ]


def _sized(size: float) -> str:
    """Return a size in bytes as text, such as ``1.5 GiB``."""
    unit = _UNITS[0]
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"
