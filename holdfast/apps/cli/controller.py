"""``holdfast controller``: runs the controller of a cluster."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from holdfast.apps.cli.address_parameter import Address
from holdfast.apps.controller.config import ControllerConfig, LogFormat, PlatformName
from holdfast.apps.controller.session import report_plan, run_controller
from holdfast.apps.exit_codes import ExitCode
from holdfast.decisions.policy import RecoveryMode
from holdfast.kit.config import load_config
from holdfast.model.errors import ConfigError

RECOVERY: Final = "ENABLE_RECOVERY"
"""Environment variable of the Neuron problem detector's recovery container."""

_EPILOG = """\b
Examples:
  holdfast controller --platform kubernetes --config controller.toml
  holdfast controller --dry-run --once    print what would be done now
  holdfast controller --listen :20258     serve metrics on all addresses

Without --kubeconfig: $KUBECONFIG, ~/.kube/config, or the service account of the pod.
ENABLE_RECOVERY=false in the environment, as in AWS's Neuron guide, marks nodes without repairing
them; true repairs them. It overrides node_recovery in the file.

\b
Exit codes:
  0 ended by SIGTERM or Ctrl-C    1 the cluster cannot be read (--once)
  2 invalid command line or configuration
"""


@click.command("controller", epilog=_EPILOG)
@click.option(
    "--platform",
    type=click.Choice([one.value for one in PlatformName]),
    help="Platform of the cluster.  [default: kubernetes]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML configuration file; command-line options override it.",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig file.")
@click.option("--context", help="Context of the kubeconfig.  [default: the current context]")
@click.option(
    "--listen",
    type=Address(),
    help="Address of /metrics, /healthz and /readyz.  [default: 127.0.0.1:20258]",
)
@click.option("--log", type=click.Choice([one.value for one in LogFormat]), help="Log format.")
@click.option("--dry-run", is_flag=True, help="Log the planned actions and change nothing.")
@click.option("--once", is_flag=True, help="With --dry-run: run one reconciliation and exit.")
def controller(
    *,
    config_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    dry_run: bool,
    once: bool,
    **options: Any,
) -> int:
    """Run the controller that repairs nodes and resumes jobs.

    Several controllers may run at once: one is active, the others stand by.
    """
    if once and not dry_run:
        raise click.UsageError("--once requires --dry-run")
    config = load_config(config_file, ControllerConfig) if config_file else ControllerConfig()
    config = _overridden(config, kubeconfig, context, options)
    if dry_run:
        report_plan(config, _report, click.echo, once=once)
    else:
        run_controller(config, _report)
    return ExitCode.OK


def _overridden(
    config: ControllerConfig, kubeconfig: Path | None, context: str | None, options: dict[str, Any]
) -> ControllerConfig:
    kinds = {"platform": PlatformName, "log": LogFormat}
    given: dict[str, Any] = {
        key: kinds[key](value) if key in kinds else value
        for key, value in options.items()
        if value is not None
    }
    recovery = os.environ.get(RECOVERY)
    if recovery is not None:
        given["nodes"] = replace(config.nodes, node_recovery=_recovery_mode(recovery))
    access: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context}
    access = {key: value for key, value in access.items() if value is not None}
    return replace(config, kubernetes=replace(config.kubernetes, **access), **given)


def _recovery_mode(text: str) -> RecoveryMode:
    modes = {"true": RecoveryMode.AUTOMATIC, "false": RecoveryMode.NONE}
    if text.lower() not in modes:
        raise ConfigError(f"{RECOVERY}: expected true or false in the environment, got {text!r}")
    return modes[text.lower()]


def _report(message: str) -> None:
    click.echo(f"holdfast controller: {message}", err=True)
