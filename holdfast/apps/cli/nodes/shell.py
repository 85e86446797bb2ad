"""``holdfast nodes shell``: opens a shell on a node, or runs one command there."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.output import OutputFormat, dry_run_option, print_document
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.shell.methods import ShellMethod, argv, on_slurm
from holdfast.apps.target import TargetPlatform, Where, open_fleets
from holdfast.apps.views.nodes import NodeStatus, find_node
from holdfast.apps.views.runs import open_runs
from holdfast.model.errors import ConfigError

_MACHINE: Final = "holdfast.adapters.local.machine"
_ON_KUBERNETES: Final = "holdfast.apps.shell.on_kubernetes"
_ON_SLURM: Final = "holdfast.apps.slurm.nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """Program that replaces this process."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    """Variables in addition to those of this process."""

    directory: Path | None = None


@examples(
    "holdfast nodes shell 0",
    "holdfast nodes shell gpu-17 --platform kubernetes",
    "holdfast nodes shell gpu-17 --platform kubernetes -- dmesg --level err",
    "holdfast nodes shell gpu-17 --platform slurm --via ssh -- nvidia-smi -q",
    "holdfast nodes shell gpu-17 --platform kubernetes --dry-run",
)
@click.command("shell", context_settings={"ignore_unknown_options": True})
@click.argument("node", shell_complete=node_names)
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@where_options("Name of the run of the node.")
@click.option(
    "--via",
    type=click.Choice([method.value for method in ShellMethod]),
    help="How to connect.  [default: pod on Kubernetes; srun on Slurm, ssh if the node is drained]",
)
@click.option(
    "--namespace",
    "-n",
    envvar=["HOLDFAST_AGENT_NAMESPACE", "HOLDFAST_NAMESPACE"],
    default="holdfast",
    show_default=True,
    help="Namespace of the pod, which must admit privileged pods.",
)
@click.option(
    "--image", help="Image of the pod, with nsenter in it.  [default: image of the agent]"
)
@dry_run_option
def shell(
    *,
    node: str,
    command: tuple[str, ...],
    via: str | None,
    namespace: str,
    image: str | None,
    dry_run: bool,
    **values: Any,
) -> int:
    """Open a shell on NODE, or run COMMAND there.

    On Kubernetes this creates a privileged pod and deletes it at the end, also after Ctrl-C or a
    lost connection. Elsewhere it runs srun, ssh, or the AWS CLI's Session Manager. On this machine,
    the shell has the environment of the node and ends with it.

    Standard input is forwarded only from a terminal.

    Exits with the code of COMMAND, or of the shell.
    """
    where = taken(values)
    if not (command or dry_run or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise click.UsageError("standard input is not a terminal: pass a command after --")
    with open_fleets(where) as known:
        owner, name = find_node(node, known)
        status = next(one for one in owner.nodes() if one.name == name)
    method = _method(where, status, via)
    if method is ShellMethod.POD:
        return _in_pod(where, name, command, namespace, image, dry_run=dry_run)
    if method is None:
        program = _on_this_machine(status, command)
    else:
        there = argv(method, status, command, is_terminal=sys.stdin.isatty())
        program = _Program(argv=there, environment=_environment(where))
    if dry_run:
        click.echo(f"would run: {shlex.join(program.argv)}")
        return ExitCode.OK
    return _become(program)


def _method(where: Where, status: NodeStatus, via: str | None) -> ShellMethod | None:
    """Return the way to reach a node; None for nodes on this machine.

    Raises:
        click.UsageError: ``via`` does not apply to the platform.

    """
    if where.place is TargetPlatform.LOCAL:
        if via is not None:
            raise click.UsageError("--via does not apply to nodes on this machine; omit it")
        return None
    if via is not None:
        if via == ShellMethod.SRUN and where.place is not TargetPlatform.SLURM:
            raise click.UsageError(f"--via srun: {status.name} is not a Slurm node")
        if via == ShellMethod.POD and where.place is not TargetPlatform.KUBERNETES:
            raise click.UsageError(f"--via pod: {status.name} is not a Kubernetes node")
        return ShellMethod(via)
    return ShellMethod.POD if where.place is TargetPlatform.KUBERNETES else on_slurm(status)


def _in_pod(
    where: Where,
    node: str,
    command: Sequence[str],
    namespace: str,
    image: str | None,
    *,
    dry_run: bool,
) -> int:
    debug_pod_for = import_module(_ON_KUBERNETES).debug_pod_for
    with debug_pod_for(node, where.kubeconfig, where.context, namespace, image) as pod:
        if dry_run:
            print_document(pod.manifest, OutputFormat.YAML)
            return ExitCode.OK
        code: int = pod.run(command)
        return code


def _on_this_machine(status: NodeStatus, command: Sequence[str]) -> _Program:
    with open_runs(default_home(), status.run) as [run]:
        directory = run.directory.node(status.name)
    if not status.powered_on:
        raise ConfigError(f"node {status.name} is powered off")
    environment = {
        import_module(_MACHINE).MARK: status.provider_id,
        "HOLDFAST_NODE": status.name,
        "PS1": f"{status.name}$ ",
    }
    login = command or (os.environ.get("SHELL", "/bin/sh"), "-i")
    return _Program(argv=login, environment=environment, directory=directory.path)


def _environment(where: Where) -> dict[str, str]:
    """Return the variables with which srun finds the selected cluster."""
    if where.place is not TargetPlatform.SLURM:
        return {}
    store = import_module(_ON_SLURM).open_store(where.state_dir)
    try:
        conf = store.places().conf
    finally:
        store.close()
    return {"SLURM_CONF": conf} if conf else {}


def _become(program: _Program) -> int:
    """Replace this process by a program, which gets its terminal, signals and exit code.

    Raises:
        ConfigError: the program is not installed.

    """
    name = program.argv[0]
    if shutil.which(name) is None:
        raise ConfigError(f"{name} not found: install it, or choose another method with --via")
    sys.stdout.flush()
    sys.stderr.flush()
    if program.directory is not None:
        os.chdir(program.directory)
    environment = {**os.environ, **program.environment}
    os.execvpe(name, list(program.argv), environment)  # noqa: S606 - an argument list
