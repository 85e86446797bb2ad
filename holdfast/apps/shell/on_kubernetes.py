"""A shell on a node of Kubernetes, through a pod of its own."""

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
from holdfast.apps.shell.terminal import borrowed, tidied_up
from holdfast.kit.units import format_duration

START_TIME: Final = timedelta(minutes=1)
"""For an image that has to be pulled."""

_LONGEST_PREFIX: Final = 50


@dataclass(frozen=True, slots=True)
class DebugPod:
    """A pod that is not there yet, for a node."""

    api: Api
    namespace: str
    manifest: dict[str, Any]

    def run(self, command: Sequence[str]) -> int:
        """Create it, run a command or a login shell on its node, and delete it.

        Returns:
            the exit code of the command.

        Raises:
            BackendError: it does not run, or the connection broke.

        """
        name = f"{self.namespace}/{self.manifest['metadata']['name']}"
        node = self.manifest["spec"]["nodeName"]
        lifetime = format_duration(debug_pod.LIFETIME)
        click.echo(
            f"Creating the privileged pod {name} on {node}; it is deleted at the end of the "
            f"command, and stops by itself after {lifetime}.",
            err=True,
        )
        with tidied_up() as leaving:
            running = debug_pod.running(
                self.api, self.namespace, self.manifest, START_TIME, leaving
            )
            with running as path, borrowed() as terminal:
                argv = debug_pod.on_node(command)
                code = attend(self.api, path, debug_pod.CONTAINER, argv, terminal, _say)
        click.echo(f"Deleted the pod {name}.", err=True)
        return code


@contextmanager
def a_pod(
    node: str, kubeconfig: Path | None, context: str | None, namespace: str, image: str | None
) -> Iterator[DebugPod]:
    """What would be created for a node, by the rules of ``find_server``.

    Raises:
        ConfigError: there is no cluster, or one that cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    api = Api(server, user_agent=f"holdfast/{__version__}", field_manager="holdfast")
    with closing(api):
        name = f"holdfast-shell-{node[:_LONGEST_PREFIX].rstrip('-.')}-{secrets.token_hex(3)}"
        chosen = image or debug_pod.image_on(api, namespace, node)
        yield DebugPod(api, namespace, debug_pod.manifest(node, name, chosen))


def _say(channel: int, content: bytes) -> None:
    stream = sys.stderr if channel == Channel.ERRORS else sys.stdout
    stream.flush()
    while content:
        content = content[os.write(stream.fileno(), content) :]
