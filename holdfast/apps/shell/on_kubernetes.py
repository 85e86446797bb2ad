"""Shell on a Kubernetes node, through a debug pod."""

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.client.pod_terminal import attend
from holdfast.adapters.kubernetes.client.websocket import Channel
from holdfast.adapters.kubernetes.nodes import debug_pod
from holdfast.apps.shell.terminal import raw_terminal, unwinding_on_signals
from holdfast.kit.units import format_duration

START_TIME: Final = timedelta(minutes=1)
"""Timeout of the start of the pod; its image may have to be pulled."""

_LONGEST_PREFIX: Final = 50


@dataclass(frozen=True, slots=True)
class DebugPod:
    """Debug pod for a node, not created yet."""

    api: Api
    namespace: str
    manifest: dict[str, Any]

    def run(self, command: Sequence[str]) -> int:
        """Create the pod, run a command or a login shell on its node, and delete the pod.

        Returns:
            Exit code of the command.

        Raises:
            BackendError: the pod does not start, or the connection broke.

        """
        name = f"{self.namespace}/{self.manifest['metadata']['name']}"
        node = self.manifest["spec"]["nodeName"]
        lifetime = format_duration(debug_pod.LIFETIME)
        click.echo(
            f"Creating the privileged pod {name} on {node}; it is deleted at the end of the "
            f"command, and stops by itself after {lifetime}.",
            err=True,
        )
        with unwinding_on_signals() as leaving:
            running = debug_pod.running(
                self.api, self.namespace, self.manifest, START_TIME, leaving
            )
            with running as path, raw_terminal() as terminal:
                argv = debug_pod.on_node(command)
                code = attend(self.api, path, debug_pod.CONTAINER, argv, terminal, _write)
        click.echo(f"Deleted the pod {name}.", err=True)
        return code


@contextmanager
def debug_pod_for(
    node: str, kubeconfig: Path | None, context: str | None, namespace: str, image: str | None
) -> Iterator[DebugPod]:
    """Return the debug pod for a node, in the cluster that ``find_server`` selects.

    Raises:
        ConfigError: no cluster is found, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    api = Api(server, user_agent=f"holdfast/{__version__}", field_manager="holdfast")
    with closing(api):
        name = f"holdfast-shell-{node[:_LONGEST_PREFIX].rstrip('-.')}-{secrets.token_hex(3)}"
        chosen = image or debug_pod.image_on(api, namespace, node)
        yield DebugPod(api, namespace, debug_pod.manifest(node, name, chosen))


def _write(channel: int, content: bytes) -> None:
    stream = sys.stderr if channel == Channel.ERRORS else sys.stdout
    stream.flush()
    while content:
        content = content[os.write(stream.fileno(), content) :]
