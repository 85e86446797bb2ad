"""Providers of other packages, registered in the entry-point group ``holdfast.providers``."""

from holdfast.adapters.providers.settings import ProviderConfig, ProviderName
from holdfast.kit.plugins import call_plugin, plugin_error
from holdfast.model.errors import ConfigError
from holdfast.model.names import PluginGroup
from holdfast.ports.provider import NodeProvider


def build(config: ProviderConfig) -> NodeProvider:
    """The provider that the entry point returns for the settings.

    Raises:
        ConfigError: the plug-in is missing or broken, or lacks a method that is needed.

    """
    if config.plugin is None:
        raise ConfigError("provider.plugin: missing, expected a table with name")
    group, name = PluginGroup.PROVIDERS, config.plugin.name
    provider = call_plugin(group, name, config.plugin.settings)
    orders = {"reboot": config.rebooter, "replace": config.replace}
    for method, chosen in orders.items():
        if chosen is ProviderName.PLUGIN and not callable(getattr(provider, method, None)):
            raise plugin_error(group, name, f"its provider has no method {method}(node, token)")
    return provider  # type: ignore[no-any-return]
