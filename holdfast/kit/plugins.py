"""Plug-ins: objects that installed distributions register under an entry-point group."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from holdfast.model.errors import ConfigError


def plugin_names(group: str) -> frozenset[str]:
    """Return the names that installed distributions register in ``group``. Imports none of them."""
    return frozenset(_points(group).names)


def load_plugin(group: str, name: str) -> Any:
    """Return the object of entry point ``name`` of ``group``. Imports its module.

    Raises:
        ConfigError: no installed distribution registers ``name``, several do, or the import fails.

    """
    points = _points(group)
    found = {point.value: point for point in points if point.name == name}
    if not found:
        known = ", ".join(sorted(points.names)) or "none"
        raise ConfigError(
            f'plug-in "{name}": no installed package registers it in entry-point group {group};'
            f" known: {known}; install the package into the environment of this process"
        )
    if len(found) > 1:
        raise ConfigError(
            f'plug-in "{name}" of {group} is registered several times: {", ".join(sorted(found))};'
            " uninstall all packages but one"
        )
    (point,) = found.values()
    return _run(group, name, f"{point.value} cannot be imported", point.load)


def call_plugin(group: str, name: str, *arguments: object) -> Any:
    """Return the result of an entry point's callable for ``arguments``.

    Raises:
        ConfigError: it is missing or cannot be imported, is not callable, or raises.

    """
    build = load_plugin(group, name)
    if not callable(build):
        raise plugin_error(group, name, f"expected a callable, got {type(build).__name__}")
    return _run(group, name, "its callable failed", build, *arguments)


def plugin_error(group: str, name: str, problem: str) -> ConfigError:
    """Return the error of an installed plug-in that cannot be used."""
    return ConfigError(f'plug-in "{name}" of {group}: {problem}; fix or uninstall its package')


def call_foreign(call: Callable[..., Any], *arguments: object) -> tuple[Any, Exception | None]:
    """Return the result of code of others, which may raise anything, and what it raised."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 - returned
        return None, error


def _points(group: str) -> Any:
    # Metadata takes several MiB, so processes without plug-ins do not load it.
    return import_module("importlib.metadata").entry_points(group=group)


def _run(group: str, name: str, problem: str, call: Callable[..., Any], *arguments: object) -> Any:
    result, error = call_foreign(call, *arguments)
    if error is not None:
        why = f"{problem}: {type(error).__name__}: {error}"
        raise plugin_error(group, name, why) from error
    return result
