"""A ``MachineGroups`` in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.model.clusters import GroupMachine, MachineGroup, MachineState
from holdfast.ports.clock import Clock
from tests.ports.fakes import Calls


@dataclass(slots=True)
class FakeMachineGroups:
    """Machine groups in memory.

    Machines boot and leave when ``settle`` is called; those in ``broken`` groups fail.
    """

    clock: Clock
    calls: Calls = field(default_factory=Calls)
    groups: dict[str, MachineGroup] = field(default_factory=dict)
    members: dict[str, list[GroupMachine]] = field(default_factory=dict)
    broken: set[tuple[str, int]] = field(default_factory=set)
    """Key and revision of the groups whose new machines fail."""

    image: str = ""
    """Image of new machines whose group names none."""

    made: int = 0

    def ensure(self, group: MachineGroup) -> None:
        """See ``MachineGroups.ensure``."""
        self.calls.note("ensure", group.key)
        self.groups[group.key] = group
        self.members.setdefault(group.key, [])

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """See ``MachineGroups.machines``."""
        self.calls.note("machines", group)
        return tuple(self.members.get(group, ()))

    def scale(self, group: str, count: int) -> None:
        """See ``MachineGroups.scale``."""
        self.calls.note("scale", f"{group} {count}")
        staying = [one for one in self.members[group] if one.state is not MachineState.LEAVING]
        self._leave(group, {one.id for one in staying[count:]})
        self.members[group] += [self._new(group) for _ in range(count - len(staying))]

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """See ``MachineGroups.remove``."""
        self.calls.note("remove", f"{group} {' '.join(sorted(ids))}")
        self._leave(group, set(ids))

    def delete(self, group: str) -> None:
        """See ``MachineGroups.delete``."""
        self.calls.note("delete", group)
        self._leave(group, {one.id for one in self.members.get(group, ())})
        self.groups.pop(group, None)

    def settle(self) -> None:
        """Complete all pending changes."""
        for key, members in self.members.items():
            group = self.groups.get(key)
            fails = group is not None and (key, group.revision) in self.broken
            self.members[key] = [
                _booted(one, fails=fails)
                for one in members
                if one.state is not MachineState.LEAVING
            ]

    def _new(self, key: str) -> GroupMachine:
        self.made += 1
        group = self.groups[key]
        return GroupMachine(
            id=f"i-{self.made:017x}",
            name=f"node-{self.made}",
            state=MachineState.JOINING,
            launched_at=self.clock.now(),
            image=group.previous_image or group.image or self.image,
            addresses=(f"10.0.0.{self.made}",),
        )

    def _leave(self, group: str, ids: set[str]) -> None:
        self.members[group] = [
            replace(one, state=MachineState.LEAVING) if one.id in ids else one
            for one in self.members.get(group, ())
        ]


def _booted(machine: GroupMachine, *, fails: bool) -> GroupMachine:
    if machine.state is not MachineState.JOINING:
        return machine
    if fails:
        return replace(machine, state=MachineState.FAILED, message="its script ended with 1")
    return replace(machine, state=MachineState.RUNNING)
