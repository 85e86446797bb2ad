"""``holdfast clusters``: lists and describes the clusters of a cluster API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from holdfast.apps.cli.clusters.changes import CHANGES
from holdfast.apps.cli.clusters.options import ClusterCalls, cluster_names, read_options
from holdfast.apps.cli.clusters.prune import prune
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.output import (
    Column,
    age,
    is_document,
    print_details,
    print_document,
    print_rows,
    print_section,
)
from holdfast.apps.cli.watch import show
from holdfast.apps.clock import SystemClock

Item = Mapping[str, Any]


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
    Column(title="type", cell=lambda one: one["InstanceType"], minor=True),
    Column(title="status", cell=lambda one: one["InstanceStatus"]["Status"]),
    Column(title="age", cell=lambda one: _age(one["LaunchTime"])),
    Column(title="message", cell=lambda one: one["InstanceStatus"].get("Message"), minor=True),
)
_EVENTS: Final[Sequence[Column[Item]]] = (
    Column(title="when", cell=lambda one: f"{_age(one['EventTime'])} ago"),
    Column(title="level", cell=lambda one: one.get("EventLevel")),
    Column(title="group", cell=lambda one: one.get("InstanceGroupName"), wide=True),
    Column(title="node", cell=lambda one: one.get("InstanceId"), wide=True),
    Column(title="what", cell=lambda one: one.get("Description")),
)


@examples("holdfast clusters list", "holdfast clusters list --config api.toml --watch")
@clusters.command("list")
@read_options
def list_clusters(*, calls: ClusterCalls, watch: bool, output: str) -> None:
    """List clusters, newest first."""
    show(
        lambda: list(calls.pages("list_clusters", "ClusterSummaries", SortOrder="Descending")),
        lambda rows: print_rows(
            rows,
            _CLUSTERS,
            output=output,
            empty="There is no cluster yet; create one with: holdfast clusters create --from FILE",
        ),
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


@examples("holdfast clusters nodes ml-cluster", "holdfast clusters nodes lab --output wide --watch")
@clusters.command()
@click.argument("name", shell_complete=cluster_names)
@read_options
def nodes(*, name: str, calls: ClusterCalls, watch: bool, output: str) -> None:
    """List the nodes of a cluster, including nodes that have no machine yet."""
    requested = {"ClusterName": name, "IncludeNodeLogicalIds": True}
    show(
        lambda: list(calls.pages("list_cluster_nodes", "ClusterNodeSummaries", **requested)),
        lambda rows: print_rows(rows, _NODES, output=output, empty=f"{name} has no nodes."),
        watch=watch,
    )


@examples("holdfast clusters events ml-cluster", "holdfast clusters events lab --node i-0123456789")
@clusters.command()
@click.argument("name", shell_complete=cluster_names)
@click.option("--group", help="Show only events of this instance group.")
@click.option("--node", help="Show only events of this instance.")
@read_options
def events(
    *,
    name: str,
    group: str | None,
    node: str | None,
    calls: ClusterCalls,
    watch: bool,
    output: str,
) -> None:
    """List the events of a cluster, oldest first."""
    requested = {"ClusterName": name, "InstanceGroupName": group, "NodeId": node}
    filters = {key: value for key, value in requested.items() if value}
    show(
        lambda: list(
            calls.pages("list_cluster_events", "Events", SortOrder="Ascending", **filters)
        ),
        lambda rows: print_rows(rows, _EVENTS, output=output, empty=f"{name} has no events."),
        watch=watch,
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
