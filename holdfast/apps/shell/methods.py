"""Command lines that open a shell on a node."""

import json
import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from holdfast.apps.views.nodes import NodeStatus
from holdfast.model.errors import ConfigError
from holdfast.model.names import NODE_NAME_PREFIX
from holdfast.model.nodes import Phase

_LOGIN: Final = ("bash", "-l")
_INSTANCE: Final = re.compile(
    rf"(?:sagemaker/cluster/{NODE_NAME_PREFIX}(?P<cluster>[^/]+)-)?(?P<id>i-\w+)$"
)
"""End of the provider ID of an EC2 instance, or of an instance of a HyperPod cluster."""

_COMMAND_DOCUMENT: Final = "AWS-StartInteractiveCommand"


class ShellMethod(StrEnum):
    """Way to open a shell on a node."""

    POD = "pod"
    SRUN = "srun"
    SSH = "ssh"
    SSM = "ssm"


def on_slurm(node: NodeStatus) -> ShellMethod:
    """Return srun for a schedulable node, ssh for others: Slurm starts nothing on these."""
    return ShellMethod.SRUN if node.phase is Phase.SCHEDULABLE else ShellMethod.SSH


def argv(
    method: ShellMethod, node: NodeStatus, command: Sequence[str], *, is_terminal: bool
) -> list[str]:
    """Return the command line to execute in place of this process.

    Raises:
        ConfigError: the way does not work for this node.

    """
    match method:
        case ShellMethod.SRUN:
            pty = ["--pty"] if is_terminal else []
            return ["srun", "--nodelist", node.name, "--nodes=1", "--ntasks=1", *pty, *(
                command or _LOGIN
            )]  # fmt: skip
        case ShellMethod.SSH:
            tty = ["-t"] if is_terminal else []
            return ["ssh", *tty, node.name, *([shlex.join(command)] if command else [])]
        case ShellMethod.SSM:
            return [*_session(node), *_document(command)]
        case ShellMethod.POD:
            raise ConfigError(f"--via pod: {node.name} is not a Kubernetes node")


def _session(node: NodeStatus) -> list[str]:
    found = _INSTANCE.search(node.provider_id)
    if found is None:
        raise ConfigError(
            f"--via ssm: {node.name} is not a known AWS machine: its ID is "
            f"{node.provider_id or 'not known'}"
        )
    target = found["id"]
    if found["cluster"] is not None:
        if not node.group:
            raise ConfigError(f"--via ssm: the instance group of {node.name} is not known")
        target = f"sagemaker-cluster:{found['cluster']}_{node.group}-{target}"
    return ["aws", "ssm", "start-session", "--target", target]


def _document(command: Sequence[str]) -> list[str]:
    if not command:
        return []
    parameters = json.dumps({"command": [shlex.join(command)]})
    return ["--document-name", _COMMAND_DOCUMENT, "--parameters", parameters]
