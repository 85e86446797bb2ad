"""The table of providers; each module is loaded when its provider is chosen."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from holdfast.adapters.providers.by_hand import ByHand
from holdfast.adapters.providers.kubernetes_api import OpenCluster
from holdfast.adapters.providers.orders import Orders
from holdfast.adapters.providers.settings import ProviderConfig, ProviderName
from holdfast.model.errors import ConfigError
from holdfast.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """Requirements of a provider; ``build`` in the module of its name builds it."""

    extra: str = ""
    """Extra of this package with the dependencies of the module."""

    needs_cluster: bool = False
    """Whether ``build`` takes ``open_cluster``; then it repairs only nodes of Kubernetes."""

    needs_slurm: bool = False
    """Whether it repairs only nodes of Slurm."""


ROWS: Final = {
    ProviderName.EC2: ProviderRow(extra="aws"),
    ProviderName.EC2_AUTOSCALING: ProviderRow(extra="aws"),
    ProviderName.SAGEMAKER: ProviderRow(extra="aws"),
    ProviderName.KARPENTER: ProviderRow(needs_cluster=True),
    ProviderName.CLUSTER_API: ProviderRow(needs_cluster=True),
    ProviderName.SLURM_POWER: ProviderRow(needs_slurm=True),
    ProviderName.SLURM_REBOOT: ProviderRow(needs_slurm=True),
    ProviderName.WEBHOOK: ProviderRow(),
    ProviderName.COMMAND: ProviderRow(),
    ProviderName.PLUGIN: ProviderRow(),
}


def build_provider(
    config: ProviderConfig, clock: Clock, open_cluster: OpenCluster | None = None
) -> Orders:
    """Build the ``NodeProvider`` of a configuration.

    Args:
        config: the table ``provider``.
        clock: for backoff.
        open_cluster: opens Kubernetes clusters; None if the nodes are not in one.

    Raises:
        ConfigError: a package is not installed, or the settings of a provider are invalid.

    """
    names = {config.replace, config.rebooter} - {ProviderName.NONE}
    built = {name: _built(name, config, open_cluster) for name in sorted(names)}
    replaces_by = "" if config.replace is ProviderName.NONE else config.replace
    by_hand = ByHand(replaces_by)
    return Orders(
        reboot=built.get(config.rebooter, by_hand).reboot,
        replace=built.get(config.replace, by_hand).replace,
        clock=clock,
    )


def _built(name: ProviderName, config: ProviderConfig, open_cluster: OpenCluster | None) -> Any:
    row = ROWS[name]
    if row.needs_cluster and open_cluster is None:
        raise ConfigError(f'provider: "{name}" supports only Kubernetes nodes; choose another')
    if row.needs_slurm and open_cluster is not None:
        raise ConfigError(f'provider: "{name}" supports only Slurm nodes; choose another')
    try:
        module = import_module(f"holdfast.adapters.providers.{name.key}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'provider: "{name}" needs the Python package {error.name}; install it with'
            f" pip install 'holdfast[{row.extra}]'"
        ) from error
    return module.build(config, open_cluster) if row.needs_cluster else module.build(config)
