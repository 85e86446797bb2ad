"""Shell completion of the names of nodes, jobs, incidents and clusters.

Errors are not reported: a message would interrupt the command line that is being typed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.apps.cli.where import taken
from holdfast.apps.target import open_fleets, open_jobs
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:  # only completion needs it
    from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completion(read: Callable[[dict[str, Any]], Iterable[str]]) -> Completion:
    """Return the completion of the names that ``read`` finds, given the options so far."""

    def complete(
        context: click.Context,
        _: click.Parameter,
        incomplete: str,
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - see above

        try:
            found = [name for name in read(dict(context.params)) if name.startswith(incomplete)]
        except (HoldfastError, click.ClickException, OSError, ModuleNotFoundError):
            return []
        return [CompletionItem(name) for name in found]

    return complete


def _nodes(values: dict[str, Any]) -> Iterator[str]:
    with open_fleets(taken(values)) as known:
        for fleet in known:
            yield from (node.name for node in fleet.nodes(brief=True))


def _jobs(values: dict[str, Any]) -> Iterator[str]:
    with open_jobs(taken(values)) as known:
        yield from (job.name for job in known.jobs())


def _incidents(values: dict[str, Any]) -> Iterator[str]:
    with open_fleets(taken(values), ended=True) as known:
        for fleet in known:
            yield from (one.id for one in fleet.incidents())


def _clusters(_: dict[str, Any]) -> Iterator[str]:
    from holdfast.adapters.local.layout import default_home, runs  # noqa: PLC0415 - of one platform

    return (run.name for run in runs(default_home()) if run.is_cluster)


node_names = completion(_nodes)
job_names = completion(_jobs)
incident_ids = completion(_incidents)
cluster_names = completion(_clusters)
"""Names of the clusters on this machine."""
