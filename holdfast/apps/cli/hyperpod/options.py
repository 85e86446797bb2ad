"""Options of ``hyperpod start-job``."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from holdfast.apps.hyperpod.job_request import (
    PULL_POLICIES,
    RESTART_POLICIES,
    SCHEDULERS,
    Claim,
    HostVolume,
)
from holdfast.model.names import DeepCheckStatus, Labels

_KIND: Final = "kubeflow/PyTorchJob"

Values = Mapping[str, tuple[str, ...]]


class _Pairs(click.ParamType[dict[str, str]]):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``: ``a=1,b=2``, or JSON."""
        if isinstance(value, dict):
            return value
        if value.startswith("{"):
            try:
                return {str(key): str(item) for key, item in json.loads(value).items()}
            except (ValueError, AttributeError) as error:
                self.fail(f"{value!r} is not a JSON object: {error}", param, ctx)
        pairs = [one.partition("=") for one in value.split(",") if one]
        if not all(key and sign for key, sign, _ in pairs):
            self.fail(f"{value!r}: expected KEY=VALUE,KEY=VALUE", param, ctx)
        return {key: item for key, _, item in pairs}


class _Selector(click.ParamType[dict[str, Values]]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``: ``{"required": {LABEL: [VALUE]}, "preferred": ...}``."""
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(value)
            read = {
                kind: {key: tuple(map(str, values)) for key, values in found.get(kind, {}).items()}
                for kind in ("required", "preferred")
            }
        except (ValueError, AttributeError, TypeError) as error:
            self.fail(f'expected {{"required": {{LABEL: [VALUE, ...]}}}}: {error}', param, ctx)
        return {kind: labels for kind, labels in read.items() if labels}


class _Volumes(click.ParamType[tuple[HostVolume, ...]]):
    name = "name:/host:/container,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``."""
        if isinstance(value, tuple):
            return value
        parts = [one.split(":") for one in value.split(",")]
        if not all(len(one) == 3 and all(one) for one in parts):
            self.fail(f"{value!r}: expected NAME:HOST_PATH:MOUNT_PATH,...", param, ctx)
        return tuple(HostVolume(name=a, host_path=b, mount_path=c) for a, b, c in parts)


class _Claims(click.ParamType[tuple[Claim, ...]]):
    name = "claim:/path,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType.convert``."""
        if isinstance(value, tuple):
            return value
        parts = [one.split(":") for one in value.split(",")]
        if not all(len(one) == 2 and all(one) for one in parts):
            self.fail(f"{value!r}: expected CLAIM:MOUNT_PATH,...", param, ctx)
        return tuple(Claim(name=a, mount_path=b) for a, b in parts)


def _script_args(_context: click.Context, _param: click.Parameter, value: str | None) -> Any:
    """Split script arguments, which HyperPod takes as one value: ``--lr 1e-3`` or in brackets."""
    return None if value is None else tuple(value.strip().strip("[]").split())


_OPTIONS: Final = (
    click.option(
        "--config-file", type=click.Path(path_type=Path), help="YAML file in HyperPod's job format."
    ),
    click.option("--job-name", "name", help="Name of the job."),
    click.option("-n", "--namespace", help="Namespace of the job.  [default: from the context]"),
    click.option(
        "--job-kind", type=click.Choice([_KIND]), default=_KIND, expose_value=False, hidden=True
    ),
    click.option("--image", help="Container image."),
    click.option(
        "--pull-policy",
        type=click.Choice(PULL_POLICIES),
        help="Image pull policy.  [default: IfNotPresent]",
    ),
    click.option("--command", help="Command that runs the script.  [default: torchrun]"),
    click.option("--entry-script", help="Script to run."),
    click.option(
        "--script-args",
        callback=_script_args,
        help="Arguments of the script, quoted as one argument.",
    ),
    click.option("--environment", type=_Pairs(), help="Environment variable."),
    click.option("--instance-type", help="Instance type of the nodes, such as ml.p5.48xlarge."),
    click.option("--node-count", "nodes", type=int, help="Number of nodes."),
    click.option(
        "--tasks-per-node", type=int, help="Processes per node.  [default: number of GPUs]"
    ),
    click.option("--label-selector", type=_Selector(), help="Node labels as JSON."),
    click.option(
        "--deep-health-check-passed-nodes-only",
        "passed_only",
        type=bool,
        help="Use only nodes that passed a deep health check.  [default: false]",
    ),
    click.option(
        "--scheduler-type",
        "scheduler",
        type=click.Choice(SCHEDULERS),
        help="Scheduler of the pods.  [default: SageMaker]",
    ),
    click.option("--queue-name", "queue", help="Kueue's LocalQueue."),
    click.option("--priority", help="Kueue's priority class."),
    click.option(
        "--auto-resume", type=bool, help="Resume the job after a node failure.  [default: false]"
    ),
    click.option("--max-retry", type=int, help="Maximum number of restarts.  [default: 1]"),
    click.option(
        "--restart-policy",
        type=click.Choice(RESTART_POLICIES),
        help="Restart policy of the pods.  [default: OnFailure]",
    ),
    click.option("--volumes", type=_Volumes(), help="hostPath volumes."),
    click.option(
        "--persistent-volume-claims",
        "claims",
        type=_Claims(),
        help="PersistentVolumeClaims to mount.",
    ),
    click.option(
        "--results-dir",
        expose_value=False,
        hidden=True,
        help="Accepted for compatibility and ignored.",
    ),
    click.option("--service-account-name", "service_account", help="ServiceAccount of the pods."),
    click.option("--debug", is_flag=True, expose_value=False, hidden=True),
    click.option("--dry-run", is_flag=True, help="Print the manifest and exit."),
)


def start_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the function gets their values under the field names of ``JobRequest``."""

    def called(
        *,
        label_selector: Mapping[str, Values] | None,
        passed_only: bool | None,
        **values: Any,
    ) -> Any:
        values |= label_selector or {}
        if passed_only:
            passed = {Labels().deep_health_check_status: (str(DeepCheckStatus.PASSED),)}
            values["required"] = passed
        return function(**values)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Callable[..., Any] = called
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
