"""Identity and expected devices of a node, from the configuration and the machine."""

from dataclasses import replace
from pathlib import Path

from holdfast.adapters.host.accelerators import (
    instance_type,
    neuron_counters,
    nvidia_driver,
)
from holdfast.adapters.host.identity import machine_identity
from holdfast.apps.agent.config import AgentConfig, ExpectedDevices
from holdfast.detectors.instance_types import UNKNOWN_EQUIPMENT, Equipment, equipment_of


def node_equipment(config: AgentConfig, *, at_once: bool) -> Equipment:
    """Configured devices, or those of the instance type. See ``Equipment`` for ``at_once``."""
    kind = config.instance_type or instance_type(config.root)
    return equipment_for(kind, config.expected, config.root, at_once=at_once)


def identity_labels(config: AgentConfig) -> dict[str, str]:
    """Non-empty labels of the machine's identity, configured or read from the machine."""
    known = machine_identity(config.root)
    names = ("cluster", "cluster_id", "instance_group", "instance_id")
    found = {name: getattr(config.identity, name) or getattr(known, name) for name in names}
    return {name: value for name, value in found.items() if value}


def equipment_for(kind: str, expected: ExpectedDevices, root: Path, *, at_once: bool) -> Equipment:
    """Expected counts, or those of the instance type ``kind``, which may be unknown."""
    usual = equipment_of(kind) or UNKNOWN_EQUIPMENT
    return replace(
        usual,
        gpus=usual.gpus if expected.gpus is None else expected.gpus,
        efa=expected.efa,
        neuron_devices=(
            usual.neuron_devices if expected.neuron_devices is None else expected.neuron_devices
        ),
        driver=nvidia_driver(root),
        neuron_counters=neuron_counters(root),
        at_once=at_once,
    )
