"""Labels and taints of nodes: what to set and remove, without touching those of others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.model.node_settings import KubernetesConfig, NodeSettings, SettingsChange, Taint

_Setting = tuple[str, str]
"""Identity of a label (key, and an empty effect) or of a taint (key and effect)."""

_LABEL: Final = ""


def observed(
    before: NodeSettings, desired: KubernetesConfig, seen: KubernetesConfig
) -> NodeSettings:
    """Return the settings of a node with its current state.

    Args:
        before: as of the last round.
        desired: what its group requests.
        seen: all labels and taints of the node.

    """
    requested, owned, there = _by_id(desired), _by_id(before.owned), _by_id(seen)
    current = {one: there[one] for one in {*requested, *owned} if one in there}
    foreign = [
        _described(one, there[one], value)
        for one, value in requested.items()
        if one not in owned and there.get(one, value) != value
    ]
    return replace(before, current=_config(current), conflict="; ".join(sorted(foreign)))


def planned(
    machine: str, settings: NodeSettings, desired: KubernetesConfig
) -> tuple[NodeSettings, SettingsChange | None]:
    """Return the settings to record for a node, and then the change to apply, if one is needed.

    Args:
        machine: id of its machine.
        settings: of ``observed``.
        desired: what its group requests.

    """
    requested, owned, there = _by_id(desired), _by_id(settings.owned), _by_id(settings.current)
    kept = {one: value for one, value in requested.items() if one in owned or one not in there}
    old = _config(
        {one: value for one, value in owned.items() if one in there and one not in requested}
    )
    recorded = replace(settings, owned=_config({**kept, **_by_id(old)}))
    new = _config({one: value for one, value in kept.items() if there.get(one) != value})
    if new.is_empty and old.is_empty:
        return recorded, None
    return recorded, SettingsChange(
        machine=machine,
        labels={**new.labels, **dict.fromkeys(old.labels)},
        taints=new.taints,
        removed_taints=old.taints,
    )


def is_applied(settings: NodeSettings, desired: KubernetesConfig) -> bool:
    """Return whether a node has all requested settings, and no owned one beyond them."""
    requested, owned, there = _by_id(desired), _by_id(settings.owned), _by_id(settings.current)
    has_all = all(there.get(one) == value for one, value in requested.items())
    return has_all and not any(one in there for one in owned if one not in requested)


def shared(configs: Sequence[KubernetesConfig]) -> KubernetesConfig:
    """Return the labels and taints that all nodes have."""
    if not configs:
        return KubernetesConfig()
    first, *rest = [dict(_items(one)) for one in configs]
    return _config(
        {
            one: value
            for one, value in first.items()
            if all(other.get(one) == value for other in rest)
        }
    )


def _described(setting: _Setting, there: str, requested: str) -> str:
    key, effect = setting
    if effect == _LABEL:
        text = f"label {key} is {there!r}, requested is {requested!r}"
    else:
        text = f"taint {key}:{effect} has the value {there!r}, requested is {requested!r}"
    return f"{text}, and was not set by this API; remove it from the node or from KubernetesConfig"


def _by_id(config: KubernetesConfig) -> dict[_Setting, str]:
    return dict(_items(config))


def _items(config: KubernetesConfig) -> Iterator[tuple[_Setting, str]]:
    for key, value in config.labels.items():
        yield (key, _LABEL), value
    for one in config.taints:
        yield (one.key, one.effect), one.value


def _config(settings: Mapping[_Setting, str]) -> KubernetesConfig:
    ordered = sorted(settings.items())
    return KubernetesConfig(
        labels={key: value for (key, effect), value in ordered if effect == _LABEL},
        taints=tuple(
            Taint(key=key, effect=effect, value=value)
            for (key, effect), value in ordered
            if effect != _LABEL
        ),
    )
