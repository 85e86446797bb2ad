"""Node provider of the local platform: boots, reboots and replaces machines."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.machine import LocalMachine, Power, new_provider_id, node_name
from holdfast.adapters.local.store import LocalStore
from holdfast.kit.files import storage_error
from holdfast.kit.processes import reap
from holdfast.model.errors import BackendError, NodeGone
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.ports.clock import Clock

AgentCommand = Callable[[str, NodeDir], Sequence[str]]
"""Returns the command line of a node's agent, from the name and directory of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Simulated boot and replacement times of a machine."""

    boot: timedelta = timedelta(milliseconds=500)
    """Time from power-on, at the start and after a reboot, to the start of the agent."""

    replace: timedelta = timedelta(milliseconds=500)
    """Time from the order of a replacement to the start of the agent on the new machine."""


class LocalMachines:
    """A ``NodeProvider`` whose machines are process trees.

    The machines end with this object, so its orders are kept in memory only.
    """

    def __init__(
        self, run: RunDir, store: LocalStore, clock: Clock, delays: Delays, agent: AgentCommand
    ) -> None:
        self._run = run
        self._store = store
        self._clock = clock
        self._delays = delays
        self._agent = agent
        self._orders: set[str] = set()
        self._machines: dict[str, LocalMachine] = {}

    def __getitem__(self, node: str) -> LocalMachine:
        return self._machines[node]

    def get(self, node: str) -> LocalMachine | None:
        """Return the machine behind a node; None if it no longer exists."""
        return self._machines.get(node)

    def all(self) -> tuple[LocalMachine, ...]:
        """Return all machines that exist."""
        return tuple(self._machines.values())

    def add(
        self, *, delay: timedelta | None = None, replaces: str = "", group: str = ""
    ) -> LocalMachine:
        """Create a new machine; it boots after ``delay``."""
        now = self._clock.now()
        provider_id = new_provider_id()
        name = node_name(provider_id)
        machine = LocalMachine(
            provider_id=provider_id,
            directory=self._run.node(name),
            boots_at=now + (self._delays.boot if delay is None else delay),
            replaces=replaces,
        )
        record = NodeRecord(phase=Phase.JOINING, phase_since=now)
        try:
            machine.directory.create()
            self._store.add_node(name, provider_id, replaces, record, group=group)
        except BackendError:  # the next try has another name
            shutil.rmtree(machine.directory.path, ignore_errors=True)
            raise
        self._machines[name] = machine
        return machine

    def restore(self) -> None:
        """Boot the machines that existed when the previous process ended, as after a power cut."""
        now = self._clock.now()
        for name, (provider_id, replaces, record) in self._store.nodes().items():
            self._machines[name] = LocalMachine(
                provider_id=provider_id,
                directory=self._run.node(name),
                boots_at=now + self._delays.boot,
                replaces=replaces,
            )
            if record.phase in (Phase.JOINING, Phase.SCHEDULABLE, Phase.CHECKING):
                joining = dataclasses.replace(record, phase=Phase.JOINING, phase_since=now)
                self._store.put_node(name, joining)

    def reboot(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.reboot``."""
        machine = self._machines.get(node.name)
        if machine is None:
            raise NodeGone(f"machine {node.provider_id} not found")
        if token in self._orders:
            return
        now = self._clock.now()
        machine.cut_power(now)
        machine.power = Power.BOOTING
        machine.boots_at = now + self._delays.boot
        self._orders.add(token)

    def replace(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.replace``."""
        if token in self._orders or any(one.replaces == node.name for one in self.all()):
            return
        machine = self._machines.get(node.name)
        if machine is not None:
            machine.cut_power(self._clock.now())
        self.add(delay=self._delays.replace, replaces=node.name, group=node.group)
        self._orders.add(token)

    def retire(self, node: str) -> None:
        """Remove a machine; its files move to ``retired/``.

        Raises:
            BackendError: they cannot be moved; ``StorageFull`` if no space is left.

        """
        machine = self._machines.get(node)
        if machine is None:
            return
        machine.cut_power(self._clock.now())
        if machine.directory.path.is_dir():
            try:
                machine.directory.path.rename(self._run.retired / node)
            except OSError as error:
                raise storage_error(error, self._run.retired / node) from error
        del self._machines[node]

    def boot_due(self) -> datetime | None:
        """Boot each machine whose boot is due; returns when the next one is due.

        Raises:
            BackendError: a machine could not be booted; ``StorageFull`` if no space is left.

        """
        now = self._clock.now()
        longest = max(self._delays.boot, self._delays.replace)
        waiting = [one for one in self.all() if one.power is Power.BOOTING]
        for machine in waiting:
            machine.boots_at = min(machine.boots_at, now + longest)  # the clock may be set back
            if machine.boots_at <= now:
                machine.boot(self._agent(machine.name, machine.directory))
        return min((one.boots_at for one in waiting if one.power is Power.BOOTING), default=None)

    def reap(self) -> None:
        """Reap the processes of machines that are powered off."""
        reap({machine.process.pid for machine in self.all() if machine.process is not None})

    def shut_down(self) -> None:
        """End all processes on all machines."""
        now = self._clock.now()
        for machine in self.all():
            machine.cut_power(now)
        self.reap()
