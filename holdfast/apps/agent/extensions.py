"""Additional detectors: rule files and plug-ins of installed packages."""

from holdfast.adapters.host.rule_files import read_rules
from holdfast.adapters.host.sources import SOURCES
from holdfast.apps.agent.config import AgentConfig
from holdfast.detectors.contract import KERNEL_LOG, LOGS, Detector
from holdfast.detectors.custom_rules import custom_detector
from holdfast.kit.plugins import call_plugin, plugin_error
from holdfast.model.errors import ConfigError
from holdfast.model.names import PluginGroup


def added_detectors(config: AgentConfig) -> tuple[Detector, ...]:
    """The detector of all rule files, and the detectors of plug-ins, sorted by name.

    Raises:
        ConfigError: a rule file or a plug-in is invalid; the message lists all problems.

    """
    found: list[Detector] = []
    problems: list[str] = []
    if config.rule_files:
        try:
            found.append(custom_detector(read_rules(config.rule_files)))
        except ConfigError as error:
            problems += error.problems
    for name in config.plugins:
        try:
            found.append(_plugin(config, name))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(found)


def _plugin(config: AgentConfig, name: str) -> Detector:
    group = PluginGroup.DETECTORS
    detector = call_plugin(group, name, config.profile)
    if not isinstance(detector, Detector):
        kind = type(detector).__name__
        raise plugin_error(group, name, f"expected its callable to return a Detector, got {kind}")
    if detector.name != name:
        raise plugin_error(group, name, f'its detector is named "{detector.name}"')
    if unknown := sorted(detector.reads - {KERNEL_LOG, LOGS, *SOURCES}):
        raise plugin_error(
            group, name, f"it reads {', '.join(unknown)}; expected one of {KERNEL_LOG}, "
            + ", ".join(SOURCES)
        )  # fmt: skip
    if KERNEL_LOG in detector.reads and not detector.keywords:
        raise plugin_error(group, name, f"it reads {KERNEL_LOG} and has no keywords")
    return detector
