"""``holdfast clusters``: lists and describes the clusters of a cluster API."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from holdfast.apps.cli.clusters.changes import CHANGES
from holdfast.apps.cli.clusters.options import ClusterCalls, cluster_names, read_options
from holdfast.apps.cli.clusters.prune import prune
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.output import (
    NAMED_LISTS,
    Column,
    age,
    is_document,
    print_details,
    print_document,
    print_rows,
    print_section,
)
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show
from holdfast.apps.clock import SystemClock
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.model.sagemaker import ClusterStatus, EventLevel, InstanceStatus

Item = Mapping[str, Any]
_listing: Final = functools.partial(read_options, formats=NAMED_LISTS)


@click.group(cls=FullHelpGroup)
def clusters() -> None:
    """Create, change, list and delete clusters through the cluster API.

    The commands work with holdfast api and with SageMaker: select it with --endpoint-url.
    """


for _change in CHANGES:
    clusters.add_command(_change)
clusters.add_command(prune)


def _age(at: datetime) -> str:
    return age(at, SystemClock().now())


def _counts(group: Item) -> str:
    return f"{group.get('CurrentCount', 0)}/{group.get('TargetCount', 0)}"


_CLUSTERS: Final[Sequence[Column[Item]]] = (
    Column(title="cluster", cell=lambda one: one["ClusterName"]),
    Column(title="status", cell=lambda one: one["ClusterStatus"]),
    Column(title="age", cell=lambda one: _age(one["CreationTime"])),
    Column(title="arn", cell=lambda one: one["ClusterArn"], wide=True),
)
_GROUPS: Final[Sequence[Column[Item]]] = (
    Column(title="group", cell=lambda one: one["InstanceGroupName"]),
    Column(title="type", cell=lambda one: one.get("InstanceType")),
    Column(title="nodes", cell=_counts),
    Column(title="status", cell=lambda one: one.get("Status")),
    Column(title="software", cell=lambda one: one.get("SoftwareUpdateStatus")),
    Column(title="image", cell=lambda one: one.get("CurrentImageId"), wide=True),
)
_NODES: Final[Sequence[Column[Item]]] = (
    Column(title="node", cell=lambda one: one["InstanceId"]),
    Column(title="name", cell=lambda one: one.get("NodeLogicalId"), wide=True),
    Column(title="group", cell=lambda one: one["InstanceGroupName"]),
    Column(title="type", cell=lambda one: one["InstanceType"], drop=2),
    Column(title="status", cell=lambda one: one["InstanceStatus"]["Status"], whole=True),
    Column(title="age", cell=lambda one: _age(one["LaunchTime"]), drop=1),
    Column(title="message", cell=lambda one: one["InstanceStatus"].get("Message"), whole=True),
)
_CLUSTER_STATES: Final = tuple(status.value for status in ClusterStatus)
_CLUSTER_FIELDS: Final = RowFields[Item](
    states=lambda one: (one["ClusterStatus"],),
    since=lambda one: one["CreationTime"],
    reason=lambda _: "",
    jobs=lambda _: (),
    labels={"name": lambda one: one["ClusterName"]},
)
_NODE_STATES: Final = tuple(status.value for status in InstanceStatus)
_NODE_FIELDS: Final = RowFields[Item](
    states=lambda one: (one["InstanceStatus"]["Status"],),
    since=lambda one: one["LaunchTime"],
    reason=lambda one: one["InstanceStatus"].get("Message") or "",
    jobs=lambda _: (),
    labels={
        "name": lambda one: one["InstanceId"],
        "group": lambda one: one["InstanceGroupName"],
        "type": lambda one: one["InstanceType"],
    },
)
_EVENTS: Final[Sequence[Column[Item]]] = (
    Column(title="when", cell=lambda one: f"{_age(one['EventTime'])} ago"),
    Column(title="level", cell=lambda one: one.get("EventLevel")),
    Column(title="group", cell=lambda one: one.get("InstanceGroupName"), wide=True),
    Column(title="node", cell=lambda one: one.get("InstanceId"), wide=True),
    Column(title="what", cell=lambda one: one.get("Description"), whole=True),
)
_LEVELS: Final = tuple(level.value for level in EventLevel)
_EVENT_FIELDS: Final = RowFields[Item](
    states=lambda one: (one.get("EventLevel", ""),),
    since=lambda one: one["EventTime"],
    reason=lambda one: one.get("Description", ""),
    jobs=lambda _: (),
    labels={
        "group": lambda one: one.get("InstanceGroupName", ""),
        "node": lambda one: one.get("InstanceId", ""),
    },
)


class _Listing(NamedTuple):
    """A list of the API, and how its rows are shown."""

    columns: Sequence[Column[Item]]
    fields: RowFields[Item]
    empty: str
    """Message if there are no rows."""

    unmatched: str
    """Message if there are rows, and none is selected."""


@examples(
    "holdfast clusters list",
    "holdfast clusters list --config api.toml --watch",
    "holdfast clusters list --state Failed,Deleting --since 1h --output name",
)
@clusters.command("list")
@select_options(_CLUSTER_STATES, tuple(_CLUSTER_FIELDS.labels), has_reasons=False, has_jobs=False)
@_listing
def list_clusters(
    *, calls: ClusterCalls, watch: bool, output: str, no_headers: bool, **values: Any
) -> None:
    """List clusters, newest first; --since is the time since their creation."""
    empty = "There is no cluster yet; create one with: holdfast clusters create --from FILE"
    _show_selected(
        lambda: calls.pages("list_clusters", "ClusterSummaries", SortOrder="Descending"),
        _Listing(_CLUSTERS, _CLUSTER_FIELDS, empty, "No cluster matches."),
        taken_selection(values),
        watch=watch,
        output=output,
        headers=not no_headers,
    )


def _show_selected(
    read: Callable[[], Iterable[Item]],
    listing: _Listing,
    selection: Selection,
    *,
    watch: bool,
    output: str,
    headers: bool,
) -> None:
    empty = listing.empty if selection == Selection() else listing.unmatched
    show(
        lambda: selected(read(), listing.fields, selection, SystemClock().now()),
        lambda rows: print_rows(rows, listing.columns, output=output, empty=empty, headers=headers),
        watch=watch,
    )


@examples("holdfast clusters describe ml-cluster", "holdfast clusters describe lab -o yaml")
@clusters.command()
@click.argument("name", shell_complete=cluster_names)
@read_options
def describe(*, name: str, calls: ClusterCalls, watch: bool, output: str) -> None:
    """Show details of a cluster and its instance groups."""
    show(
        lambda: calls.call("describe_cluster", ClusterName=name),
        lambda cluster: _describe(cluster, output),
        watch=watch,
    )


@examples(
    "holdfast clusters nodes ml-cluster",
    "holdfast clusters nodes lab --output wide --watch",
    "holdfast clusters nodes lab --state Failure,Pending -l group=workers --sort-by since",
)
@clusters.command()
@click.argument("name", shell_complete=cluster_names)
@select_options(_NODE_STATES, tuple(_NODE_FIELDS.labels), has_jobs=False)
@_listing
def nodes(
    *,
    name: str,
    calls: ClusterCalls,
    watch: bool,
    output: str,
    no_headers: bool,
    **values: Any,
) -> None:
    """List the nodes of a cluster, including nodes that have no machine yet.

    --since is the time since the launch of a node, --reason a part of its message.
    """
    requested = {"ClusterName": name, "IncludeNodeLogicalIds": True}
    _show_selected(
        lambda: calls.pages("list_cluster_nodes", "ClusterNodeSummaries", **requested),
        _Listing(_NODES, _NODE_FIELDS, f"{name} has no nodes.", "No node matches."),
        taken_selection(values),
        watch=watch,
        output=output,
        headers=not no_headers,
    )


@examples(
    "holdfast clusters events ml-cluster",
    "holdfast clusters events lab --node i-0123456789",
    "holdfast clusters events lab --state Warn,Error --since 1h",
)
@clusters.command()
@click.argument("name", shell_complete=cluster_names)
@click.option("--group", help="Show only events of this instance group.")
@click.option("--node", help="Show only events of this instance.")
@select_options(_LEVELS, tuple(_EVENT_FIELDS.labels), has_jobs=False)
@read_options
def events(
    *,
    name: str,
    group: str | None,
    node: str | None,
    calls: ClusterCalls,
    watch: bool,
    output: str,
    no_headers: bool,
    **values: Any,
) -> None:
    """List the events of a cluster, oldest first; --state is the level of an event."""
    requested = {"ClusterName": name, "InstanceGroupName": group, "NodeId": node}
    filters = {key: value for key, value in requested.items() if value}
    _show_selected(
        lambda: calls.pages("list_cluster_events", "Events", SortOrder="Ascending", **filters),
        _Listing(_EVENTS, _EVENT_FIELDS, f"{name} has no events.", "No event matches."),
        taken_selection(values),
        watch=watch,
        output=output,
        headers=not no_headers,
    )


def _describe(cluster: Item, output: str) -> None:
    if is_document(output):
        print_document(cluster, output)
        return
    print_details(
        (
            ("cluster", cluster["ClusterName"]),
            ("status", cluster["ClusterStatus"]),
            ("age", _age(cluster["CreationTime"])),
            ("node recovery", cluster.get("NodeRecovery")),
            ("provisioning", cluster.get("NodeProvisioningMode")),
            ("failure", cluster.get("FailureMessage")),
            ("arn", cluster["ClusterArn"]),
        )
    )
    print_section("Instance groups", cluster["InstanceGroups"], _GROUPS, output=output)
