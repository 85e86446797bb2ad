"""Where the launchers of a job meet: from options, PET_* variables, or a Slurm step."""

import argparse
import errno
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.decisions.launch_runs import RunName
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import FENCED_VARIABLE, LAUNCH_KEY_VARIABLE

ON_SIGTERM: Final = ("auto", "stop", "leave")
"""Values of ``--on-sigterm``."""

_KEY_CHARS: Final = 16
_PORT: Final = 29400
"""torchrun's default port of the c10d rendezvous."""

_POD_VARIABLE: Final = "KUBERNETES_SERVICE_HOST"
"""Set by the kubelet in each container. Whoever ends a job there ends all of its pods."""

_SLURM_PORTS: Final = range(20_000, 29_000)
"""Ports for steps of Slurm, by their number and that of the job; below the ephemeral ports of Linux
(32768)."""

_STEP_PORTS: Final = 1009
"""Distance of the ports of two steps of a job: jobs on the same nodes often have near numbers."""

_ELSEWHERE: Final = {socket.AF_INET: "203.0.113.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that belong to no machine (RFC 5737, RFC 3849): the default route leads to them."""

_NODES: Final = re.compile(r"([1-9][0-9]{0,4})(?::([1-9][0-9]{0,4}))?")
_FIRST_HOST: Final = re.compile(r"([^\[\],]+)(?:\[([0-9]+)[^\]]*\])?([^\[\],]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Meeting point of the launchers of a job with several nodes."""

    host: str
    port: int
    key: bytes
    run: RunName
    nodes: int
    """Nodes of a round. Launchers beyond this number are hot spares."""

    node_rank: int | None
    """Node rank that was given. The node with 0 has the coordinator, others do not; without node
    ranks, the node of the endpoint has it."""

    join_timeout: timedelta
    lease: timedelta
    leaves_on_sigterm: bool = False
    """Whether SIGTERM to the launcher with the coordinator ends that launcher only: the others wait
    for the next one at the endpoint."""

    may_succeed_another: bool = False
    """Whether ranks of launchers that another coordinator had lost may still run when this one
    starts."""

    def listen(self) -> socket.socket | None:
        """Return a socket at the endpoint if it is on this machine and free; None if it is not."""
        if self.node_rank:
            return None
        for family, address in self._own_addresses():
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(address)
                listener.listen()  # two sockets may have the address until one of them listens
            except OSError as error:
                listener.close()
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
                if error.errno == errno.EADDRINUSE:
                    return None
                raise
            return listener
        return None

    def _own_addresses(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the families and addresses at which the coordinator may listen."""
        for host in [self.host, *([""] if self.node_rank == 0 else [])]:
            try:
                family, address = _resolved(host, self.port)
            except socket.gaierror:
                continue
            if _is_loopback(address[0]) and not _is_loopback(self.host):
                # /etc/hosts of Debian has the machine's own name at 127.0.1.1: others cannot come.
                family, address = _resolved("", self.port)
            yield family, address

    def address_for_others(self, address: str) -> str:
        """Return the address at which ranks of other nodes reach those of this one.

        Args:
            address: that of the connection to the coordinator.

        """
        if not _is_loopback(address) or _is_loopback(self.host):
            return address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((_ELSEWHERE[family], 9))  # sends nothing, but selects the route
            except OSError:  # without a default route, all ranks are on this machine
                return address
            return str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmStep:
    """Slurm's variables of the step that this process is a task of."""

    name: str
    nodes: int
    node_rank: int
    first_host: str
    port: int


def slurm_step(environment: Mapping[str, str]) -> SlurmStep | None:
    """Return the step of this process if it has several nodes; None if there is none.

    Raises:
        ConfigError: the step has more than one task on a node.

    """
    names = ("SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_NODEID", "SLURM_JOB_ID")
    numbers = [environment.get(name, "") for name in names]
    first = _FIRST_HOST.match(environment.get("SLURM_STEP_NODELIST", ""))
    if first is None or not all(number.isdecimal() for number in numbers):
        return None
    nodes, tasks, node_rank, job = map(int, numbers)
    step = environment.get("SLURM_STEP_ID", "")
    number = int(step) if step.isdecimal() else 0
    if nodes == 1:
        return None
    if tasks != nodes:
        raise ConfigError(
            f"srun: {tasks} tasks on {nodes} nodes; start one launcher on each node with "
            "--ntasks-per-node=1"
        )
    return SlurmStep(
        name=f"{job}.{number}",
        nodes=nodes,
        node_rank=node_rank,
        first_host=f"{first[1]}{first[2] or ''}{first[3]}",
        port=_SLURM_PORTS[(job + number * _STEP_PORTS) % len(_SLURM_PORTS)],
    )


def parse_nodes(text: str) -> tuple[int, int]:
    """Parse ``MIN`` or ``MIN:MAX``.

    Raises:
        ValueError: the message names what was expected.

    """
    found = _NODES.fullmatch(text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise ValueError(f"{text[:60]!r}: expected N or MIN:MAX nodes, such as 4 or 4:5")
    return int(found[1]), int(found[2] or found[1])


def meeting_point(
    given: argparse.Namespace, environment: Mapping[str, str], step: SlurmStep | None
) -> Rendezvous | None:
    """Return where the launchers meet; None for a job of one node without spares.

    Raises:
        ConfigError: there is no endpoint or no key.

    """
    least, most = parse_nodes(given.nnodes) if given.nnodes else (1, 1)
    if not given.nnodes and step is not None and not given.standalone:
        least = most = step.nodes
    if most == 1 or given.standalone:
        return None
    endpoint = given.rdzv_endpoint or given.master_addr or (step.first_host if step else "")
    host, colon, port_text = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
    port = given.master_port or (step.port if step else _PORT)
    problems = []
    if not host:
        problems.append("--rdzv-endpoint: missing; give HOST:PORT of one node, equal on all nodes")
    if colon and not (port_text.isascii() and port_text.isdecimal() and int(port_text) < 65536):
        problems.append(f"--rdzv-endpoint: {endpoint[:80]!r}: expected HOST:PORT")
    key = environment.get(LAUNCH_KEY_VARIABLE, "")
    if len(key) < _KEY_CHARS:
        problems.append(
            f"{LAUNCH_KEY_VARIABLE}: missing or shorter than {_KEY_CHARS} characters; set it to "
            "the same random value on all nodes, for example from: openssl rand -hex 32"
        )
    if problems:
        raise ConfigError(problems)
    is_pod, is_fenced = _POD_VARIABLE in environment, FENCED_VARIABLE in environment
    leaves = given.on_sigterm == "leave" or (given.on_sigterm == "auto" and (is_pod or is_fenced))
    given_rank = given.node_rank if given.node_rank is not None or step is None else step.node_rank
    return Rendezvous(
        host=host.strip("[]"),
        port=int(port_text) if port_text else port,
        key=key.encode(),
        run=RunName(
            run_id=given.rdzv_id, step=step.name if step is not None and most <= step.nodes else ""
        ),
        nodes=least,
        node_rank=given_rank,
        join_timeout=given.join_timeout,
        lease=given.lease_timeout,
        leaves_on_sigterm=leaves,
        may_succeed_another=leaves and not is_fenced,
    )


def _resolved(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Return the family and the address of a server; an empty host is each address."""
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    family, _, _, _, address = socket.getaddrinfo(host or None, port, type=kind, flags=flags)[0]
    return family, address


def _is_loopback(host: str) -> bool:
    """Return whether a name or an address is meant to be reached from this machine only."""
    return host.startswith(("127.", "localhost.")) or host in ("localhost", "::1")
