"""A machine of a cluster of real nodes: kubelet, containerd and kube-proxy in namespaces.

A machine has a network, mount, PID, UTS and IPC namespace of its own. Its disk is a folder, which
outlives it; ``/run`` does not. SIGKILL of its first process is a power loss.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final

from holdfast.kit.processes import descendants, send
from holdfast.model.errors import BackendError
from tests.engines.control_plane import FOR_GO
from tests.engines.machine_image import PAUSE

KUBELET: Final = "kubelet"
PROXY: Final = "kube-proxy"
CONTAINERD: Final = "containerd"
SHIM: Final = "containerd-shim-runc-v2"
CTR: Final = "ctr"
NODE_PROGRAMS: Final = (KUBELET, PROXY, CONTAINERD, SHIM, CTR)
"""What a node runs, beside what Debian brings."""

CNI: Final = Path("/usr/lib/cni")
"""Where Debian's package ``containernetworking-plugins`` puts the plug-ins."""

SOCKET: Final = "/run/containerd/containerd.sock"
DOMAIN: Final = "cluster.local"
LEASE: Final = 40
"""Seconds that the lease of a node is valid for: the kubelet's default."""

_DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "SIGKILL")
_NAMESPACES: Final = (
    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork"),
    *("--kill-child=SIGKILL", "--mount-proc", "--propagation", "private"),
)
_POLL_S: Final = 0.02
_TIMEOUT_S: Final = 60

_CGROUPS: Final = r"""
set -eu
while read -r _ folder kind _; do
    [ "$kind" = cgroup ] || continue
    own=$folder/$CGROUP
    mkdir -p "$own"
    for part in cpuset.cpus cpuset.mems; do
        [ ! -e "$folder/$part" ] || cat "$folder/$part" >"$own/$part"
    done
    [ ! -e "$own/cpu.shares" ] || echo 2048 >"$own/cpu.shares"
    [ ! -e "$own/cpu.weight" ] || echo 200 >"$own/cpu.weight"
    echo 1 >"$own/cgroup.procs"
done </proc/mounts
exec unshare --cgroup sh -c "$BOOT"
"""
"""Moves a machine into cgroups of its own, so that all that its pods get are below them.

Of a busy processor, it gets the share of two processes: by default, all that run on it would get
together what one process beside it gets. With more, the API server would be late.
"""

_BOOT: Final = r"""
set -eu
while read -r _ folder kind _; do
    [ "$kind" != cgroup ] || mount --bind "$folder/$CGROUP" "$folder"
done <<END
$(cat /proc/mounts)
END
hostname "$NAME"
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$DISK/lib" /var/lib
mount --bind "$DISK/log" /var/log
mount --bind "$DISK/boot_id" /proc/sys/kernel/random/boot_id
[ ! -e /etc/machine-id ] || mount --bind "$DISK/machine-id" /etc/machine-id
read -r _
ip link set lo up
ip address add "$ADDRESS" dev eth0
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
ip -batch "$DISK/routes"
service() { while :; do "$@" || :; sleep 1; done; }
service containerd --config "$DISK/containerd.toml" >>/var/log/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done
service kubelet --config "$DISK/kubelet.yaml" --kubeconfig "$DISK/kubelet.kubeconfig" \
    --hostname-override "$NAME" --node-ip "${ADDRESS%/*}" --node-labels "$LABELS" \
    >>/var/log/kubelet.log 2>&1 &
service kube-proxy --config "$DISK/kube-proxy.yaml" --hostname-override "$NAME" \
    >>/var/log/kube-proxy.log 2>&1 &
while :; do wait; done
"""

CONTAINERD_TOML: Final = f"""
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# Several cannot share /var/run/nri; the rest would look for devices and file systems.
disabled_plugins = [
    "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
    "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
address = "{SOCKET}"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true  # a negative one takes CAP_SYS_RESOURCE
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{CNI}"]
conf_dir = "/var/lib/cni-conf"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a machine is in the network of its cluster."""

    address: IPv4Address
    pods: IPv4Network
    network: IPv4Network
    """Of all machines; its first address is that of the machine outside, with the DNS server."""

    routes: Mapping[IPv4Network, IPv4Address]
    """Ranges of pods to the machines that have them, for all machines that there may be."""


class RealNode:
    """One machine, off until ``boot``.

    Args:
        name: of its Node.
        folder: its disk.
        path: folders of the programs, as in ``PATH``.
        place: in the network.
        kubeconfig: writes a configuration for clients, given the user that they act for and the
            user's groups.
        plug_in: connects the namespace of a process with the network of the cluster.
        labels: of its Node.
        cgroup: name of the cgroups that it and its pods are in.

    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        path: str,
        place: Place,
        kubeconfig: Callable[[str, str], Any],
        plug_in: Callable[["RealNode", int], None],
        labels: Mapping[str, str],
        cgroup: str,
    ) -> None:
        self.name = name
        self.disk = folder
        self.place = place
        self.provider_id = f"machine:///{uuid.uuid4()}"
        self._path = path
        self._plug_in = plug_in
        self._cgroup = cgroup
        self._labels = labels
        self._lines = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._switch = threading.RLock()
        self._is_destroyed = False
        for part in ("lib/cni-conf", "lib/dbus", "log"):
            (folder / part).mkdir(parents=True)
        self._furnish(kubeconfig)

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """A process of this machine that is in its network namespace."""
        if self._process is None:
            raise BackendError(f"{self.name} is powered off")
        return self._process.pid

    @property
    def boot_id(self) -> str:
        """Of the boot that it is in, or was in last; empty if it was destroyed."""
        with suppress(FileNotFoundError):
            return (self.disk / "boot_id").read_text(encoding="utf-8").strip()
        return ""

    def boot(self) -> None:
        """Switch it on, unless it is on or destroyed: a test and its owner may do so at once.

        It has a new boot ID, nothing in the kernel log, and its old disk.
        """
        with self._switch:
            if not self.is_on and not self._is_destroyed:
                self._boot()

    def _boot(self) -> None:
        (self.disk / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="utf-8")
        self._kernel_log.write_bytes(b"")
        self._lines = 0
        with (self.disk / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [*_DIES_WITH_US, *_NAMESPACES, "sh", "-c", _CGROUPS],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                start_new_session=True,  # Ctrl-C is for the test, which then ends them
                env={
                    **FOR_GO,
                    "BOOT": _BOOT,
                    "CGROUP": self._cgroup,
                    "PATH": self._path,
                    "DISK": str(self.disk),
                    "NAME": self.name,
                    "ADDRESS": f"{self.place.address}/{self.place.network.prefixlen}",
                    "LABELS": ",".join(f"{key}={value}" for key, value in self._labels.items()),
                },
            )
        own = os.readlink("/proc/self/ns/net")
        _until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != own)
        self._plug_in(self, self.pid)
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()

    def power_off(self) -> None:
        """Take its power: everything on it ends at once. The disk stays."""
        with self._switch:
            self._power_off()

    def _power_off(self) -> None:
        if (process := self._process) is None:
            return
        self._process = None
        self._unplug(process.pid)
        first = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        _until(lambda: not any(Path("/proc", str(pid)).exists() for pid in first))
        # The next boot must find none: cAdvisor waits seconds for the containers of each.
        _until(self._are_cgroups_gone)

    def _unplug(self, pid: int) -> None:
        """Disconnect it: the kernel would send others the end of the connections of its processes.

        Nobody sends that for a machine without power.
        """
        network = f"--net=/proc/{pid}/ns/net"
        command = ["nsenter", network, "ip", "link", "delete", "eth0"]
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL)

    def kill(self, program: str) -> None:
        """SIGKILL to a program of it, such as the kubelet, which starts again after a second."""
        found = [pid for pid in descendants(self.pid) if _name(pid) == program]
        assert found, f"{program} does not run on {self.name}"
        for pid in found:
            send(pid, signal.SIGKILL)

    def reboot(self) -> None:
        """Take its power and give it back."""
        with self._switch:
            self.power_off()
            self.boot()

    def destroy(self) -> None:
        """Take its power for ever, and its disk."""
        with self._switch:
            self._is_destroyed = True
            self.power_off()
            shutil.rmtree(self.disk, ignore_errors=True)

    def log(self, message: str) -> None:
        """Write a record to its kernel log."""
        self._lines += 1
        with self._kernel_log.open("a", encoding="utf-8") as log:
            log.write(f"4,{self._lines},{self._lines},-;{message}\n")

    def journal(self, lines: int = 5) -> str:
        """The last lines of its programs, for people."""
        parts = []
        paths = [self.disk / "console", *sorted((self.disk / "log").glob("*.log"))]
        for path in (path for path in paths if path.exists()):
            last = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            parts += [f"{self.name}: {path.name}", *last]
        return "\n".join(parts)

    def _are_cgroups_gone(self) -> bool:
        """Try to remove the cgroups; those with processes that still end stay."""
        tops = [*Path("/sys/fs/cgroup").glob(f"*/{self._cgroup}")]
        for folder in (Path(name) for top in tops for name, *_ in os.walk(top, topdown=False)):
            with suppress(OSError):
                folder.rmdir()
        return not any(top.exists() for top in tops)

    @property
    def _kernel_log(self) -> Path:
        return self.disk / "log" / "kmsg"

    def _furnish(self, kubeconfig: Callable[[str, str], Any]) -> None:
        """Write what its programs read."""
        machine = uuid.uuid4().hex + "\n"
        self._write("machine-id", machine)
        self._write("lib/dbus/machine-id", machine)
        self._write("resolv.conf", "")
        # The addresses of Services have no route of their own.
        routes = [f"default via {self.place.network[1]}"]
        routes += [
            f"{pods} via {machine}"
            for pods, machine in self.place.routes.items()
            if machine != self.place.address
        ]
        self._write("routes", "".join(f"route add {route}\n" for route in routes))
        self._write("containerd.toml", CONTAINERD_TOML)
        user = f"system:node:{self.name}"
        self._write("kubelet.kubeconfig", json.dumps(kubeconfig(user, "system:nodes")))
        self._write("kubelet.yaml", json.dumps(self._kubelet()))
        self._write("proxy.kubeconfig", json.dumps(kubeconfig("system:kube-proxy", "")))
        self._write("kube-proxy.yaml", json.dumps(self._proxy()))
        self._write("lib/cni-conf/10-pods.conflist", json.dumps(self._pod_network()))

    def _write(self, name: str, text: str) -> None:
        (self.disk / name).write_text(text, encoding="utf-8")

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "clusterDNS": [str(self.place.network[1])],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "nodeLeaseDurationSeconds": LEASE,
            "providerID": self.provider_id,
            "resolvConf": str(self.disk / "resolv.conf"),
            "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        }

    def _proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.disk / "proxy.kubeconfig")},
            # Sysctls that a network namespace may not change.
            "conntrack": {"maxPerCore": 0, "tcpCloseWaitTimeout": "0s",
                          "tcpEstablishedTimeout": "0s"},
            "healthzBindAddress": "",
            "iptables": {"minSyncPeriod": "0.1s"},
            "mode": "iptables",
        }  # fmt: skip

    def _pod_network(self) -> dict[str, Any]:
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isDefaultGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": str(self.place.pods)}]]},
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def _name(pid: int) -> str:
    """Name of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BackendError(f"a machine did not start or end within {_TIMEOUT_S} s")
        time.sleep(_POLL_S)
