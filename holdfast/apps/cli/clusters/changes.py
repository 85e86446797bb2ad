"""``holdfast clusters``: commands that change clusters."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from holdfast.api.group_requests import resized
from holdfast.apps.cli.clusters.options import (
    ClusterCalls,
    change_options,
    cluster_names,
    request_of,
)
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    confirm_or_abort,
    is_document,
    print_document,
    yes_option,
)
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.kit.quota import Quota
from holdfast.model.names import BatchResponse

_INSTANCE_ID: Final = re.compile(r"i-[a-f0-9]{8}([a-f0-9]{9})?")
_NAMED: Final = "SuccessfulNodeLogicalIds"
_UNNAMED: Final = "FailedNodeLogicalIds"


class _Share(click.ParamType[Quota]):
    """Number of nodes, or percentage of a group."""

    name = "COUNT|PERCENT%"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Quota:
        """See click."""
        try:
            return value if isinstance(value, Quota) else Quota.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@examples(
    "holdfast clusters create --from cluster.json",
    "holdfast clusters create --from cluster.json --dry-run",
)
@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON file with a CreateCluster request, as for aws sagemaker create-cluster"
    " --cli-input-json.",
)
@change_options
def create(
    *,
    source: Path,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> None:
    """Create a cluster."""
    request = request_of(source, "CreateCluster")
    name = request["ClusterName"]
    count = sum(one["InstanceCount"] for one in request.get("InstanceGroups", ()))
    if dry_run:
        _print_change(
            {"ClusterName": name}, f"{name}: would be created with {_nodes(count)}", output
        )
        return
    made = calls.call("create_cluster", **request)
    _print_change(
        made,
        f"{name} is being created with {_nodes(count)}; see: holdfast clusters nodes {name} "
        "--watch",
        output,
    )


@examples(
    "holdfast clusters update --from cluster.json --dry-run",
    "holdfast clusters update --from cluster.json --yes",
)
@click.command()
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON file with an UpdateCluster request, as for aws sagemaker update-cluster"
    " --cli-input-json.",
)
@yes_option
@change_options
def update(*, source: Path, yes: bool, dry_run: bool, calls: ClusterCalls, output: str) -> None:
    """Change instance groups and settings of a cluster.

    Instance groups that the file omits are unchanged. InstanceGroupsToDelete names the groups to
    delete. Running machines are unchanged.
    """
    request = request_of(source, "UpdateCluster")
    name = request["ClusterName"]
    groups = calls.call("describe_cluster", ClusterName=name)["InstanceGroups"]
    before = {one["InstanceGroupName"]: one.get("TargetCount", 0) for one in groups}
    after = _after(before, request)
    counts = [
        f"{group} {before.get(group, 0)} -> {after.get(group, 0)}"
        for group in {**before, **after}
        if before.get(group) != after.get(group)
    ]
    changes = f"nodes: {', '.join(counts)}" if counts else "number of nodes unchanged"
    if dry_run:
        _print_change({"ClusterName": name}, f"{name} would be updated; {changes}", output)
        return
    lost = sum(max(0, count - after.get(group, 0)) for group, count in before.items())
    if lost:
        confirm_or_abort(f"Remove {_nodes(lost)} from {name} ({changes})?", yes=yes)
    answer = calls.call("update_cluster", **request)
    _print_change(answer, f"{name} is being updated; {changes}", output)


@examples("holdfast clusters delete lab", "holdfast clusters delete lab --yes --output json")
@click.command()
@click.argument("name", shell_complete=cluster_names)
@yes_option
@change_options
def delete(
    *,
    name: str,
    yes: bool,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> None:
    """Delete a cluster and all its nodes."""
    cluster = calls.call("describe_cluster", ClusterName=name)
    count = sum(one.get("TargetCount", 0) for one in cluster["InstanceGroups"])
    if dry_run:
        _print_change(
            {"ClusterName": name}, f"{name}: would be deleted with {_nodes(count)}", output
        )
        return
    confirm_or_abort(f"Delete the cluster {name} with {_nodes(count)}?", yes=yes)
    _print_change(
        calls.call("delete_cluster", ClusterName=name), f"{name} is being deleted", output
    )


@examples("holdfast clusters scale lab worker-group-1 8", "holdfast clusters scale lab gpu 0 --yes")
@click.command()
@click.argument("name", shell_complete=cluster_names)
@click.argument("group")
@click.argument("count", type=click.IntRange(min=0))
@yes_option
@change_options
def scale(
    *,
    name: str,
    group: str,
    count: int,
    yes: bool,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> None:
    """Change the number of nodes of an instance group; nodes without a job are removed first."""
    found = _group(calls, name, group)
    before = found.get("TargetCount", 0)
    if dry_run:
        text = f"{name}: {group} would have {_nodes(count)} instead of {before}"
        _print_change({"ClusterName": name, "TargetCount": count}, text, output)
        return
    if count < before:
        confirm_or_abort(f"Remove {_nodes(before - count)} from {group}?", yes=yes)
    change = resized(found, count)
    answer = calls.call("update_cluster", ClusterName=name, InstanceGroups=[change])
    _print_change(answer, f"{name}: {group} will have {_nodes(count)} instead of {before}", output)


@examples(
    "holdfast clusters update-software lab --batch 25% --bake 10m",
    "holdfast clusters update-software lab --group gpu --image ami-0123456789abcdef0 --dry-run",
)
@click.command("update-software")
@click.argument("name", shell_complete=cluster_names)
@click.option(
    "--group", multiple=True, help="Instance group to update; may be repeated.  [default: all]"
)
@click.option(
    "--batch",
    type=_Share(),
    help="Number or percentage of nodes to update at once.  [default: all nodes of a group]",
)
@click.option(
    "--bake",
    type=Duration(),
    help="Time that each batch must stay healthy before the next one.  [default: 0s]",
)
@click.option("--image", help="Machine image for the new nodes, such as ami-0123456789abcdef0.")
@click.option("--alarm", multiple=True, help="Roll back if this alarm fires; may be repeated.")
@yes_option
@change_options
def update_software(  # noqa: PLR0913 - one parameter for each option
    *,
    name: str,
    group: Sequence[str],
    batch: Quota | None,
    bake: timedelta | None,
    image: str | None,
    alarm: Sequence[str],
    yes: bool,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> None:
    """Update the software of nodes in batches; each node is replaced by a new machine."""
    which = ", ".join(group) or "all groups"
    if dry_run:
        calls.call("describe_cluster", ClusterName=name)
        _print_change(
            {"ClusterName": name}, f"{name}: software of {which} would be updated", output
        )
        return
    confirm_or_abort(f"Replace the machines of {which} of {name}, batch by batch?", yes=yes)
    deployment = _deployment(batch, bake, alarm)
    request = {
        "InstanceGroups": [{"InstanceGroupName": one} for one in group],
        "DeploymentConfig": deployment,
        "ImageId": image,
    }
    given = {key: value for key, value in request.items() if value}
    answer = calls.call("update_cluster_software", ClusterName=name, **given)
    _print_change(answer, f"{name}: software update of {which} started", output)


@examples("holdfast clusters add-nodes lab gpu 2", "holdfast clusters add-nodes lab gpu 1 -o json")
@click.command("add-nodes")
@click.argument("name", shell_complete=cluster_names)
@click.argument("group")
@click.argument("count", type=click.IntRange(min=1, max=50))
@change_options
def add_nodes(
    *,
    name: str,
    group: str,
    count: int,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> int:
    """Add nodes to an instance group of a cluster with continuous provisioning."""
    _group(calls, name, group)
    if dry_run:
        _print_change(
            {"ClusterName": name}, f"{name}: {group} would have {_nodes(count)} more", output
        )
        return ExitCode.OK
    additions = [{"InstanceGroupName": group, "IncrementTargetCountBy": count}]
    answer = calls.call("batch_add_cluster_nodes", ClusterName=name, NodesToAdd=additions)
    names = ", ".join(one["NodeLogicalId"] for one in answer[BatchResponse.SUCCESSFUL])
    return _batch(answer, f"{name}: {group} will have {names}", output)


@examples(
    "holdfast clusters delete-nodes lab i-0123456789abcdef0",
    "holdfast clusters delete-nodes lab i-0123456789abcdef0 --dry-run",
)
@click.command("delete-nodes")
@click.argument("name", shell_complete=cluster_names)
@click.argument("node", nargs=-1, required=True)
@yes_option
@change_options
def delete_nodes(
    *,
    name: str,
    node: Sequence[str],
    yes: bool,
    dry_run: bool,
    calls: ClusterCalls,
    output: str,
) -> int:
    """Delete nodes by ID or name and shrink their instance groups.

    Use the name for a node that has no machine yet: see holdfast clusters nodes -o wide.
    """
    shown = ", ".join(node)
    if dry_run:
        calls.call("describe_cluster", ClusterName=name)
        _print_change({"ClusterName": name}, f"{name}: {shown} would be deleted", output)
        return ExitCode.OK
    confirm_or_abort(f"Delete {shown} of {name}?", yes=yes)
    ids = [one for one in node if _INSTANCE_ID.fullmatch(one)]
    names = [one for one in node if one not in ids]
    requested = {"NodeIds": ids, "NodeLogicalIds": names}
    given = {key: value for key, value in requested.items() if value}
    answer = calls.call("batch_delete_cluster_nodes", ClusterName=name, **given)
    deleted = (*answer.get(BatchResponse.SUCCESSFUL, ()), *answer.get(_NAMED, ()))
    text = f"{name}: {', '.join(deleted)} will be deleted" if deleted else ""
    return _batch(answer, text, output)


CHANGES: Final = (create, update, scale, update_software, add_nodes, delete_nodes, delete)


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _group(calls: ClusterCalls, name: str, group: str) -> dict[str, Any]:
    found = calls.call("describe_cluster", ClusterName=name)["InstanceGroups"]
    for one in found:
        if one["InstanceGroupName"] == group:
            return dict(one)
    raise NotFound(no_such("instance group", group, [one["InstanceGroupName"] for one in found]))


def _after(before: Mapping[str, int], request: Mapping[str, Any]) -> dict[str, int]:
    """Return ``instance group -> number of nodes`` after the update."""
    requested = {
        one["InstanceGroupName"]: one["InstanceCount"] for one in request.get("InstanceGroups", ())
    }
    deleted = request.get("InstanceGroupsToDelete", ())
    return {name: count for name, count in {**before, **requested}.items() if name not in deleted}


def _deployment(
    batch: Quota | None, bake: timedelta | None, alarms: Sequence[str]
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if batch is not None:
        is_share = batch.percent is not None
        size = {
            "Type": "CAPACITY_PERCENTAGE" if is_share else "INSTANCE_COUNT",
            "Value": round(batch.percent or 0) if is_share else batch.count,
        }
        config["RollingUpdatePolicy"] = {"MaximumBatchSize": size}
    if bake is not None:
        config["WaitIntervalInSeconds"] = round(bake.total_seconds())
    if alarms:
        config["AutoRollbackConfiguration"] = [{"AlarmName": one} for one in alarms]
    return config


def _print_change(answer: dict[str, Any], text: str, output: str) -> None:
    if is_document(output):
        print_document(answer, output)
    else:
        click.echo(text)


def _batch(answer: dict[str, Any], text: str, output: str) -> int:
    """Print the result of a batch call; returns the exit code."""
    done = answer.get(BatchResponse.SUCCESSFUL) or answer.get(_NAMED)
    failed = [*answer.get(BatchResponse.FAILED, ()), *answer.get(_UNNAMED, ())]
    if is_document(output):
        print_document(answer, output)
    elif text:
        click.echo(text)
    for one in failed:
        click.echo(f"holdfast: {one['Message']}", err=True)
    if failed:
        return ExitCode.PARTLY_DONE if done else ExitCode.FAILED
    return ExitCode.OK
