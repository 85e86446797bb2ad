"""What can be done to bring about a cluster that somebody asked for."""

from dataclasses import dataclass

from holdfast.model.clusters import MachineGroup


@dataclass(frozen=True, slots=True)
class Ensure:
    """Have a group whose new machines are made of this."""

    group: MachineGroup


@dataclass(frozen=True, slots=True)
class Scale:
    """Have so many machines."""

    group: str
    """``MachineGroup.key``."""

    count: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Take machines away."""

    group: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a group away."""

    group: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Have another machine in place of one, after its jobs have left it."""

    group: str
    machine: str
    """Its id."""

    node: str
    """Its name."""


ClusterAction = Ensure | Scale | Remove | Delete | Renew
