"""A cluster of real Kubernetes nodes on one machine, for tests: real pods, without Docker.

The control plane of ``tests.engines.control_plane`` and a DNS server run on this machine; each node
is a machine in namespaces of its own. A bridge in another network namespace connects the nodes, and
one pair of interfaces connects it with this machine, so that everything ends with its processes::

    with RealCluster(programs, ("a", "b", "c")) as cluster:
        cluster.nodes["a"].power_off()

Needs root, and of Debian ``containernetworking-plugins``, ``iproute2``, ``iptables`` and ``runc``.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.model.errors import BackendError
from tests.engines.api_connection import Refused
from tests.engines.control_plane import API_SERVER, PROGRAMS, ControlPlane
from tests.engines.machine_image import write_archive
from tests.engines.real_network import RealNetwork
from tests.engines.real_node import CNI, CONTAINERD_TOML, DOMAIN, NODE_PROGRAMS, SOCKET, RealNode
from tests.engines.waiting import PAUSE

DNS: Final = "coredns"
REAL_PROGRAMS: Final = (*PROGRAMS, *NODE_PROGRAMS, DNS)
"""What a cluster needs of ``tools/control_plane.py``."""

GROUP: Final = "node.kubernetes.io/instance-type"
"""The label by which nodes form a group."""

_DEBIAN: Final = {
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "runc": "runc",
}
"""Program to the package of Debian that has it."""

_MEMORY: Final = Path("/dev/shm")
_NODE_GRACE: Final = timedelta(seconds=20)
_TIMEOUT_S: Final = 120
_POLL_S: Final = 0.05

_COREFILE: Final = """\
{domain}:53 {{
    bind {host}
    errors
    kubernetes {domain} {{
        kubeconfig {}
    }}
}}
"""

_IMPORT: Final = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$DISK" /var/lib
containerd --config "$CONFIG" &
until [ -S "$SOCKET" ] && ctr --address "$SOCKET" version >/dev/null 2>&1; do sleep 0.05; done
ctr --address "$SOCKET" --namespace k8s.io images import --local "$ARCHIVE"
kill $!
wait $! || :
"""


def missing_for_nodes() -> str:
    """What this machine lacks for real nodes, with what to do; empty if it lacks nothing."""
    if os.getuid() != 0:
        return "real Kubernetes nodes need root"
    packages = {package for program, package in _DEBIAN.items() if shutil.which(program) is None}
    packages |= set() if (CNI / "bridge").exists() else {"containernetworking-plugins"}
    if packages:
        return f"real Kubernetes nodes need: apt-get install {' '.join(sorted(packages))}"
    return ""


class RealCluster:
    """A control plane and real nodes; a context manager that leaves nothing behind.

    Nothing of it outlives the process, even if that is killed. Start machines from a thread that
    lasts as long as the cluster: they end with the thread that started them.

    Args:
        binaries: program name to executable, for each of ``REAL_PROGRAMS``.
        names: of the first nodes.

    """

    def __init__(self, binaries: Mapping[str, Path], names: Iterable[str]) -> None:
        self._binaries = binaries
        self._names = tuple(names)
        folders = {str(path.parent) for path in binaries.values()}
        self._path = ":".join([*sorted(folders), "/usr/sbin:/usr/bin:/sbin:/bin"])
        self.network = RealNetwork()
        self.nodes: dict[str, RealNode] = {}
        """Machines that were not destroyed, by the name of their Node."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            memory = _MEMORY if _MEMORY.is_dir() else None
            self._folder = Path(tempfile.mkdtemp(prefix="real-cluster-", dir=memory))
            self.network.remove_in_the_end(self._folder)
            self.plane = ControlPlane(
                self._binaries,
                node_grace=_NODE_GRACE,
                flags={
                    API_SERVER: (
                        "--endpoint-reconciler-type=lease",
                        "--kubelet-preferred-address-types=InternalIP",
                    )
                },
                host=self.network.host,
            )
            self.network.remove_in_the_end(self.plane.folder)
            stack.enter_context(self.plane)
            self._run_dns()
            stack.callback(self._power_off)
            self._import_images()
            for name in self._names:
                self.join(name)
            self.until(lambda: all(map(self.is_ready, self._names)), "nodes to be Ready")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def join(self, name: str, group: str = "p5") -> RealNode:
        """Have another machine boot and join; returns at once."""
        disk = self._folder / name
        disk.mkdir()
        node = RealNode(
            name,
            disk,
            path=self._path,
            place=self.network.place(),
            kubeconfig=self._kubeconfig,
            plug_in=self.network.plug_in,
            labels={GROUP: group},
            cgroup=f"{self.network.cgroup}-{name}",
        )
        self._copy_images(disk / "lib" / "containerd")
        self.nodes[name] = node
        node.boot()
        return node

    def leave(self, name: str) -> None:
        """Destroy a machine, and with it its Node, as the owner of machines in a cloud does."""
        self.nodes.pop(name).destroy()
        self.until(lambda: self._is_deleted(name), f"the Node {name} to be deleted")

    def _is_deleted(self, name: str) -> bool:
        """Delete a Node; whether it is gone. A busy API server may have to be asked again."""
        try:
            self.plane.request("DELETE", f"/api/v1/nodes/{name}")
        except Refused as refused:
            return refused.status == HTTPStatus.NOT_FOUND
        except (OSError, HTTPException):
            return False
        return True

    def node(self, name: str) -> dict[str, Any] | None:
        """The Node of a machine; None if there is none."""
        try:
            found: dict[str, Any] = self.plane.request("GET", f"/api/v1/nodes/{name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return None
        return found

    def is_ready(self, name: str) -> bool:
        """Whether the Node is Ready in the boot that its machine is in."""
        node, machine = self.node(name), self.nodes.get(name)
        if node is None or machine is None:
            return False
        if node["status"]["nodeInfo"]["bootID"] != machine.boot_id:
            return False
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions.get("Ready") == "True"

    def until(
        self, condition: Callable[[], object], what: str, timeout_s: float = _TIMEOUT_S
    ) -> float:
        """Wait until something holds; returns the seconds that it took.

        Raises:
            BackendError: it does not within ``timeout_s``; with the logs of the nodes.

        """
        started = began = time.monotonic()
        while not _holds(condition):
            looked_at = time.monotonic()
            if looked_at - started > timeout_s:
                raise BackendError(f"waited {timeout_s:.0f} s for {what}\n{self.journals()}")
            time.sleep(max(_POLL_S, PAUSE * (looked_at - began)))
            began = time.monotonic()
        return time.monotonic() - started

    def journals(self) -> str:
        """The last lines that the programs of all nodes wrote, for people."""
        return "\n".join(node.journal() for node in self.nodes.values())

    def _run_dns(self) -> None:
        """Answer pods for the names of Services."""
        path, client = self.plane.folder / "Corefile", self.plane.kubeconfig()
        text = _COREFILE.format(client, domain=DOMAIN, host=self.network.host)
        path.write_text(text, encoding="utf-8")
        self.plane.run(DNS, self._binaries[DNS], "-conf", path, has_webhooks=False)

    def _power_off(self) -> None:
        for node in self.nodes.values():
            node.power_off()

    def _kubeconfig(self, user: str, group: str) -> dict[str, Any]:
        """A configuration of a client that acts for a user, whose rights it then has."""
        content: dict[str, Any] = json.loads(self.plane.kubeconfig().read_text(encoding="utf-8"))
        groups = [group, "system:authenticated"] if group else ["system:authenticated"]
        content["users"][0]["user"] |= {"as": user, "as-groups": groups}
        return content

    def _import_images(self) -> None:
        """Unpack the images once; nodes then share the files."""
        disk, archive = self._folder / "images", self._folder / "image.tar"
        config = self._folder / "containerd.toml"
        disk.mkdir()
        config.write_text(CONTAINERD_TOML, encoding="utf-8")
        write_archive(archive)
        known = {"DISK": disk, "CONFIG": config, "SOCKET": SOCKET, "ARCHIVE": archive}
        namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
        done = subprocess.run(
            ["unshare", *namespaces, "--propagation", "private", "sh", "-c", _IMPORT],
            check=False,
            capture_output=True,
            encoding="utf-8",
            env={"PATH": self._path, **{key: str(value) for key, value in known.items()}},
        )
        if done.returncode != 0:
            raise BackendError(f"the images were not imported:\n{done.stdout}{done.stderr}")
        archive.unlink()

    def _copy_images(self, target: Path) -> None:
        """Give a machine the images: its own database, and links to the files, never written."""

        def copy(source: str, to: str) -> None:
            if source.endswith(".db"):
                shutil.copy2(source, to)
            else:
                os.link(source, to, follow_symlinks=False)

        shutil.copytree(
            self._folder / "images" / "containerd", target, symlinks=True, copy_function=copy
        )


def _holds(condition: Callable[[], object]) -> bool:
    """Whether something is known to hold: a busy API server may have to be asked again."""
    try:
        return bool(condition())
    except (TimeoutError, ConnectionError, HTTPException):
        return False
