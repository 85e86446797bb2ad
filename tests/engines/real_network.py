"""The network of a cluster of real nodes: a bridge in a namespace, connected with this machine."""

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.model.errors import BackendError
from tests.engines.real_node import Place, RealNode

_NETWORKS: Final = list(IPv4Network("198.18.0.0/15").subnets(new_prefix=18))
"""One for each cluster, of the range for benchmarks: no real network uses it (RFC 2544)."""

_MACHINES: Final = 40
"""That a cluster may have in all, those that were replaced included."""

_SLOW: Final = ("tbf", "rate", "256kbit", "burst", "16kb", "latency", "400ms")
_LOST_PERCENT: Final = 20

_JANITOR: Final = r"""
trap '' INT TERM HUP
ip link set lo up
ip link add nodes type bridge
ip link set nodes up
echo ready
cgroup=$1
shift
while read -r folder; do set -- "$@" "$folder"; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null
    [ -n "$(find /sys/fs/cgroup -type d -name "$cgroup*")" ] || break
    sleep 0.5
done
rm -rf "$@"
"""
"""Holds the namespace. Ends with our end of its input, and then removes what a SIGKILL leaves."""


class RealNetwork:
    """The network of one cluster; a context manager.

    Everything of it belongs to a namespace, and ends with that.
    """

    def __enter__(self) -> Self:
        self._janitor = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _JANITOR, "janitor", self.cgroup],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
        )
        assert self._janitor.stdout is not None
        if self._janitor.stdout.readline() != "ready\n":
            raise BackendError("there is no namespace for a network: is this process root?")
        self._number = self._claim()
        self.network = _NETWORKS[self._number]
        self._places = places(self.network, _MACHINES)
        self._connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._janitor.communicate()

    @property
    def host(self) -> str:
        """The address of this machine."""
        return str(self.network[1])

    @property
    def cgroup(self) -> str:
        """What the names of the cgroups of all machines begin with."""
        return f"holdfast-nodes-{id(self):x}"

    def remove_in_the_end(self, folder: Path) -> None:
        """Have a folder removed with the network, even if this process is killed."""
        assert self._janitor.stdin is not None
        self._janitor.stdin.write(f"{folder}\n")
        self._janitor.stdin.flush()

    def place(self) -> Place:
        """A place that no machine has had."""
        return next(self._places)

    def plug_in(self, node: RealNode, pid: int) -> None:
        """Connect the namespace of a process of a machine, which keeps its hardware address."""
        port = _port(node)
        hardware = ":".join(["02", "00", *(f"{one:02x}" for one in node.place.address.packed)])
        self._inside(
            f"link add {port} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {port} master nodes up",
        )

    def cut(self, node: RealNode) -> None:
        """Pull the cable of a machine."""
        self._inside(f"link set {_port(node)} down")

    def restore(self, node: RealNode) -> None:
        """Plug it in again."""
        self._inside(f"link set {_port(node)} up")

    @contextmanager
    def slow(self, node: RealNode) -> Iterator[None]:
        """Let a machine send and receive slowly, with long queues."""
        ends = (_port(node), self._janitor.pid), ("eth0", node.pid)
        for device, pid in ends:
            _call("tc", "qdisc", "add", "dev", device, "root", *_SLOW, pid=pid)
        try:
            yield
        finally:
            for device, pid in ends:
                _call("tc", "qdisc", "delete", "dev", device, "root", pid=pid)

    @contextmanager
    def lossy(self, node: RealNode) -> Iterator[None]:
        """Lose some of the packets from and to a machine, at random."""
        port, pid = _port(node), self._janitor.pid
        table = f"table bridge lossy-{port}"
        drop = f"numgen random mod 100 < {_LOST_PERCENT} drop"
        rules = f"oifname {port} {drop}\niifname {port} {drop}\n"
        chain = f"chain forward {{\ntype filter hook forward priority 0\n{rules}}}\n"
        _call("nft", f"{table} {{\n{chain}}}", pid=pid)
        try:
            yield
        finally:
            _call("nft", f"delete {table}", pid=pid)

    def _claim(self) -> int:
        """Connect with the first number that no other cluster has."""
        for number in range(len(_NETWORKS)):
            try:
                _ip(f"link add {_interface(number)} type veth peer name uplink"
                    f" netns {self._janitor.pid}")  # fmt: skip
            except BackendError as error:
                if "File exists" not in str(error):
                    raise
            else:
                return number
        raise BackendError(f"{len(_NETWORKS)} clusters of real nodes run already; end one")

    def _connect(self) -> None:
        self._inside("link set uplink master nodes up")
        interface = _interface(self._number)
        machines = next(self.network.subnets(new_prefix=24))
        routes = next(places(self.network, _MACHINES)).routes
        _ip(
            f"address add {self.host}/{machines.prefixlen} dev {interface}",
            f"link set {interface} up",
            *(f"route add {pods} via {machine}" for pods, machine in routes.items()),
        )

    def _inside(self, *commands: str) -> None:
        _ip(*commands, within=("nsenter", "--target", str(self._janitor.pid), "--net"))


def _call(*command: str, pid: int) -> None:
    """Run a command in the network of a process."""
    there = ("nsenter", "--target", str(pid), "--net", "--")
    done = subprocess.run([*there, *command], check=False, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        raise BackendError(f"{' '.join(command)}: {done.stderr.strip()}")


def _interface(number: int) -> str:
    return f"holdfast-{number}"


def _port(node: RealNode) -> str:
    """The bridge's end of a machine's cable."""
    return f"node{node.place.address.packed[-1]}"


def _ip(*commands: str, within: Iterable[str] = ()) -> None:
    done = subprocess.run(
        [*within, "ip", "-batch", "-"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        input="\n".join([*commands, ""]),
    )
    if done.returncode != 0:
        raise BackendError(f"ip: {done.stderr.strip()}; commands: {', '.join(commands)}")


def places(network: IPv4Network, count: int) -> Iterator[Place]:
    """Places for machines; the first range has the machines themselves, the others their pods."""
    machines, *ranges = list(network.subnets(new_prefix=24))[: count + 1]
    routes = {pods: machines[10 + number] for number, pods in enumerate(ranges)}
    for pods, address in routes.items():
        yield Place(address=address, pods=pods, network=machines, routes=routes)
