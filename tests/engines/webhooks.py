"""Operators whose webhooks the API server calls on this machine."""

import base64
import json
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.engines.control_plane import ControlPlane


def certified(plane: ControlPlane, name: str) -> tuple[Path, int]:
    """A folder with the API server's own certificate for an operator, and a port that is free."""
    folder = plane.folder / name
    folder.mkdir()
    shutil.copy(plane.certificate, folder / "tls.crt")
    shutil.copy(plane.certificate.with_suffix(".key"), folder / "tls.key")
    with socket.create_server((plane.host, 0)) as free:
        return folder, free.getsockname()[1]


def addressed(plane: ControlPlane, hooks: dict[str, Any], port: int) -> dict[str, Any]:
    """The same webhooks, called by address in place of the Service that nothing stands behind."""
    bundle = base64.b64encode(plane.certificate.read_bytes()).decode()
    for hook in hooks["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://{plane.host}:{port}{path}", "caBundle": bundle}
    return hooks


def create(kubectl: Iterable[str | Path], folder: Path, items: list[Any]) -> None:
    file = folder / "manifests.json"
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    file.write_text(json.dumps(listed), encoding="utf-8")
    subprocess.run([*kubectl, "create", "--filename", file], check=True)
