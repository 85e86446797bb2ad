"""Actions that bring a cluster to its desired state."""

from dataclasses import dataclass

from holdfast.model.clusters import MachineGroup
from holdfast.model.node_settings import SettingsChange


@dataclass(frozen=True, slots=True)
class Ensure:
    """Create or update a group; its new machines get this specification."""

    group: MachineGroup


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the number of machines."""

    group: str
    """``MachineGroup.key``."""

    count: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove machines."""

    group: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a group."""

    group: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Replace machines after their jobs have left them."""

    group: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Configure:
    """Change labels and taints of Kubernetes nodes of a group."""

    group: str
    changes: tuple[SettingsChange, ...]


GroupAction = Ensure | Scale | Remove | Delete | Renew
"""Action of the provider of the machines."""

ClusterAction = Configure | GroupAction
