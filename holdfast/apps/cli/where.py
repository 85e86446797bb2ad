"""Options that select the target of a command."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from holdfast.apps.target import TargetPlatform, Where

VARIABLE: Final = "HOLDFAST_PLATFORM"

_PLATFORM: Final[Sequence[Callable[[Any], Any]]] = (
    click.option(
        "--platform",
        type=click.Choice([place.value for place in TargetPlatform]),
        envvar=VARIABLE,
        help=f"Target platform.  [default: ${VARIABLE} or local]",
    ),
    click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="Path of the kubeconfig file of the Kubernetes cluster.",
    ),
    click.option("--context", help="Context of the kubeconfig.  [default: the current context]"),
    click.option(
        "--state-dir",
        type=click.Path(path_type=Path),
        help="State directory of the Holdfast controller on Slurm.  [default: /var/lib/holdfast]",
    ),
)
_NAMESPACE: Final[Sequence[Callable[[Any], Any]]] = (
    click.option("-n", "--namespace", help="Kubernetes namespace.  [default: from the context]"),
    click.option("-A", "--all-namespaces", is_flag=True, help="Include jobs in all namespaces."),
)


def where_options(run_help: str) -> Callable[[Any], Any]:
    """Add the options of commands on nodes; ``taken`` reads them into a ``Where``."""
    return _adding(click.option("--run", metavar="RUN", help=run_help), *_PLATFORM)


def job_options() -> Callable[[Any], Any]:
    """Add the options of commands on jobs; ``taken`` reads them into a ``Where``."""
    return _adding(*_PLATFORM, *_NAMESPACE)


def _adding(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def taken(values: dict[str, Any]) -> Where:
    """Remove the options of ``where_options`` or ``job_options`` from ``values`` and return them.

    Raises:
        click.UsageError: options of different platforms are combined.

    """
    names = [field.name for field in fields(Where) if field.name in values]
    where = Where(**{name: values.pop(name) for name in names})
    is_kubernetes = where.is_kubernetes
    if where.run is not None and (is_kubernetes or where.state_dir is not None):
        raise click.UsageError(
            "--run applies to runs on this machine only: omit --kubeconfig, --context, --state-dir"
        )
    is_elsewhere = is_kubernetes or where.state_dir is not None
    if (where.cluster is not None and is_elsewhere) or (
        where.everything and where.place is not TargetPlatform.LOCAL
    ):
        raise click.UsageError(
            "--all and --cluster apply to jobs on this machine only: omit them, or the options "
            "of the other platform"
        )
    if is_kubernetes and where.state_dir is not None:
        raise click.UsageError(
            "--state-dir is for Slurm, --kubeconfig and --context are for Kubernetes: use one or "
            "the other"
        )
    if where.namespace is not None and where.all_namespaces:
        raise click.UsageError("--namespace and --all-namespaces: give only one")
    return where
