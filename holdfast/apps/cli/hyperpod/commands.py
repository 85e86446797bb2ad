"""``holdfast hyperpod``: job commands with HyperPod CLI syntax."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.hyperpod.options import start_options
from holdfast.apps.cli.output import Column, OutputFormat, print_json, print_rows
from holdfast.apps.cli.where import VARIABLE
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.hyperpod.config_file import read_config
from holdfast.apps.hyperpod.connection import connect as switch
from holdfast.apps.hyperpod.connection import connect_local, is_local, kubeconfigs
from holdfast.apps.hyperpod.job_request import JobRequest
from holdfast.apps.hyperpod.local import NAME, LocalHyperPodCluster
from holdfast.apps.hyperpod.port import HyperPodCluster
from holdfast.apps.target import TargetPlatform, Where
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.model.errors import ConfigError

_name = click.option("--job-name", required=True, help="Name of the job.")
_namespace = click.option(
    "-n", "--namespace", help="Namespace of the job.  [default: from the context]"
)


def _access(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig file."
        ),
        click.option(
            "--context", help="Context of the kubeconfig.  [default: the current context]"
        ),
    ):
        function = option(function)
    return function


@contextlib.contextmanager
def _cluster(
    kubeconfig: Path | None, context: str | None, namespace: str | None
) -> Iterator[HyperPodCluster]:
    """Open the cluster selected by the options, the environment or connect-cluster."""
    home = default_home()
    is_kubernetes = kubeconfig is not None or context is not None
    by_environment = os.environ.get(VARIABLE)
    chosen = by_environment or (
        TargetPlatform.LOCAL if is_local(home) else TargetPlatform.KUBERNETES
    )
    cluster: HyperPodCluster
    if chosen == TargetPlatform.LOCAL and not is_kubernetes:
        cluster = LocalHyperPodCluster(home)
    else:
        jobs = import_module("holdfast.apps.hyperpod.jobs")  # imports the Kubernetes client
        cluster = jobs.connect(Where(kubeconfig=kubeconfig, context=context), namespace)
    with contextlib.closing(cluster):
        yield cluster


@click.group(cls=FullHelpGroup)
def hyperpod() -> None:
    """Start, list and cancel jobs with the syntax of the HyperPod CLI.

    Jobs are PyTorchJobs of the Kubeflow training operator, or runs on this machine; connect-cluster
    selects which. To run commands from HyperPod guides unchanged:  alias hyperpod='holdfast
    hyperpod'
    """


@examples(
    "holdfast hyperpod connect-cluster --cluster-name ml --namespace kubeflow",
    "holdfast hyperpod connect-cluster --cluster-name local",
)
@hyperpod.command("connect-cluster")
@click.option(
    "--cluster-name", required=True, help="Name of the cluster; local means this machine."
)
@click.option("-n", "--namespace", help="Default namespace for later commands.")
@click.option("--region", expose_value=False, hidden=True)
@click.option("--debug", is_flag=True, expose_value=False, hidden=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig file.")
def connect_cluster(*, cluster_name: str, namespace: str | None, kubeconfig: Path | None) -> None:
    """Set the cluster for later commands, including kubectl.

    Makes its context the current context of the kubeconfig. The cluster local is this machine: its
    jobs start like those of holdfast run, and kubectl is not used.
    """
    if cluster_name == NAME:
        connect_local(default_home())
        click.echo("Connected to this machine: jobs are runs; list them with: holdfast jobs list")
        return
    files = kubeconfigs(kubeconfig, os.environ)
    context = switch(cluster_name, namespace, files, default_home())
    suffix = f", namespace {namespace}" if namespace is not None else ""
    click.echo(f"Connected to {cluster_name}: context {context}{suffix}")


@examples(
    "holdfast hyperpod start-job --config-file config.yaml --auto-resume true --max-retry 2",
    "holdfast hyperpod start-job --config-file config.yaml --dry-run",
)
@hyperpod.command("start-job")
@start_options
@_access
def start_job(
    *,
    config_file: Path | None,
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
    **given: Any,
) -> int:
    """Submit a job from a file, from options, or from a file with options that override it.

    On this machine the job starts in the background as with `holdfast run`, and --image is ignored.

    Exits with 2 and submits nothing if a value is invalid.
    """
    values = read_config(config_file) if config_file is not None else {}
    values |= {key: value for key, value in given.items() if value is not None}
    if values.get("auto_resume") is False:
        values.pop("max_retry", None)
    with _cluster(kubeconfig, context, values.get("namespace")) as cluster:
        request = _job_request({**cluster.defaults, **values})
        if dry_run:
            print_json(cluster.preview(request))
            return ExitCode.OK
        where = cluster.submit(request)
    click.echo(f"{request.name}: {where}")
    return ExitCode.OK


def _job_request(values: dict[str, Any]) -> JobRequest:
    needed = ("name", "image", "entry_script", "instance_type", "nodes")
    if missing := [key for key in needed if key not in values]:
        options = {"name": "--job-name", "nodes": "--node-count"}
        raise ConfigError(
            f"{options.get(key, '--' + key.replace('_', '-'))}: missing; add the option, or set "
            "the value in --config-file"
            for key in missing
        )
    return JobRequest(**values)


@examples("holdfast hyperpod list-jobs --all-namespaces")
@hyperpod.command("list-jobs")
@_namespace
@click.option("-A", "--all-namespaces", is_flag=True, help="List jobs in all namespaces.")
@click.option("-l", "--selector", default="", help="Label selector: KEY=VALUE,...")
@_access
def list_jobs(
    *,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """List jobs as JSON."""
    with _cluster(kubeconfig, context, namespace) as cluster:
        print_json({"jobs": cluster.jobs(selector, everywhere=all_namespaces)})


@examples("holdfast hyperpod get-job --job-name mnist --namespace kubeflow --verbose")
@hyperpod.command("get-job")
@_name
@_namespace
@click.option("--verbose", is_flag=True, help="Show the complete object.")
@_access
def get_job(
    *,
    job_name: str,
    namespace: str | None,
    verbose: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show a job as JSON."""
    with _cluster(kubeconfig, context, namespace) as cluster:
        print_json(cluster.job(job_name, verbose=verbose))


@examples("holdfast hyperpod cancel-job --job-name mnist --namespace kubeflow")
@hyperpod.command("cancel-job")
@_name
@_namespace
@_access
def cancel_job(
    *, job_name: str, namespace: str | None, kubeconfig: Path | None, context: str | None
) -> None:
    """Delete a job and its pods."""
    with _cluster(kubeconfig, context, namespace) as jobs:
        jobs.cancel(job_name)
    click.echo(f"{job_name}: cancelled")


@examples(
    "holdfast hyperpod patch-job suspend --job-name mnist",
    "holdfast hyperpod patch-job unsuspend --job-name mnist",
)
@hyperpod.command("patch-job")
@click.argument("what", type=click.Choice(["suspend", "unsuspend"]))
@_name
@_namespace
@_access
def patch_job(
    *,
    what: str,
    job_name: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Suspend or resume a job. The controller does not restart a job that you suspended."""
    with _cluster(kubeconfig, context, namespace) as jobs:
        jobs.suspend(job_name, is_suspended=what == "suspend")
    click.echo(f"{job_name}: {what}ed")


@examples("holdfast hyperpod list-pods --job-name mnist")
@hyperpod.command("list-pods")
@_name
@_namespace
@_access
def list_pods(
    *, job_name: str, namespace: str | None, kubeconfig: Path | None, context: str | None
) -> None:
    """List the pods of a job as JSON."""
    with _cluster(kubeconfig, context, namespace) as cluster:
        print_json({"pods": cluster.pods(job_name)})


@examples("holdfast hyperpod get-log --job-name mnist --pod mnist-worker-0")
@hyperpod.command("get-log")
@_name
@click.option("--pod", required=True, help="Name of a pod of the job.")
@_namespace
@_access
def get_log(
    *,
    job_name: str,
    pod: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print the log of a pod of a job."""
    with _cluster(kubeconfig, context, namespace) as jobs:
        for piece in jobs.log(job_name, pod):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@examples(
    "holdfast hyperpod exec --job-name mnist --pod mnist-worker-0 -- nvidia-smi",
    "holdfast hyperpod exec --job-name mnist --all-pods -- df -h /fsx",
)
@hyperpod.command("exec", context_settings={"ignore_unknown_options": True})
@_name
@click.option("-p", "--pod", help="Name of a pod of the job.")
@click.option("--all-pods", is_flag=True, help="Run in all pods of the job.")
@_namespace
@_access
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(
    *,
    job_name: str,
    pod: str | None,
    all_pods: bool,
    command: tuple[str, ...],
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> int:
    """Run COMMAND in one or all pods of a job, without standard input, for at most 5 minutes.

    Exits with 1 if it failed in any pod.
    """
    if (pod is None) is not all_pods:
        raise click.UsageError("give either --pod or --all-pods")
    has_failed = False
    with _cluster(kubeconfig, context, namespace) as jobs:
        names = [pod] if pod else [one["PodName"] for one in jobs.pods(job_name)]
        for name in names:
            output = jobs.run(job_name, name, command)
            if all_pods:
                click.echo(f"{name}:")
            click.echo(output.text, nl=not output.text.endswith("\n"))
            if output.error:
                has_failed = True
                click.echo(f"holdfast: {name}: {output.error}", err=True)
    return ExitCode.FAILED if has_failed else ExitCode.OK


_CAPACITY: Final[Sequence[Column[dict[str, Any]]]] = [
    Column(title="cluster", cell=lambda one: one["Cluster"]),
    Column(title="instance type", cell=lambda one: one["InstanceType"], drop=2),
    Column(title="nodes", cell=lambda one: one["TotalNodes"]),
    Column(title="free accelerators", cell=lambda one: one["AcceleratorDevicesAvailable"], drop=1),
    Column(title="health", cell=lambda one: one["NodeHealthStatus"], whole=True),
    Column(title="deep check", cell=lambda one: one["DeepHealthCheckStatus"]),
]


@examples(
    "holdfast hyperpod get-clusters",
    "holdfast hyperpod get-clusters --clusters ml --output table",
)
@hyperpod.command("get-clusters")
@click.option("--clusters", default="", metavar="NAME,...", help="Show only these clusters.")
@click.option("--region", expose_value=False, hidden=True)
@click.option("--orchestrator", type=click.Choice(["eks"]), expose_value=False, hidden=True)
@click.option("--debug", is_flag=True, expose_value=False, hidden=True)
@click.option(
    "--output",
    type=click.Choice([OutputFormat.JSON.value, OutputFormat.TABLE.value]),
    default=OutputFormat.JSON.value,
    show_default=True,
    help="Output format.",
)
@_access
def get_clusters(
    *, clusters: str, output: str, kubeconfig: Path | None, context: str | None
) -> None:
    """Show the number of nodes and free accelerators of clusters as JSON."""
    with _cluster(kubeconfig, context, None) as cluster:
        found = cluster.clusters()
    names = [name for name in clusters.split(",") if name]
    if missing := set(names) - {one["Cluster"] for one in found}:
        raise NotFound(no_such("cluster", ", ".join(missing), [one["Cluster"] for one in found]))
    shown = [one for one in found if not names or one["Cluster"] in names]
    if output == OutputFormat.JSON:
        print_json(shown)
    else:
        rows = [{"Cluster": one["Cluster"], **row} for one in shown for row in one["Instances"]]
        print_rows(rows, _CAPACITY, output=output, empty="There are no nodes.")
