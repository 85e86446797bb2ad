"""Which cluster HyperPod's commands are about: that to which a person has connected."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.apps.hyperpod.local import NAME
from holdfast.kit.files import write_atomically
from holdfast.model.errors import ConfigError

_KEYWORD: Final = "connected-cluster"
"""File in the home of runs; there while the local cluster is chosen."""


def is_local(home: Path) -> bool:
    """Whether the commands are about the runs on this machine."""
    return (home / _KEYWORD).is_file()


def connect_local(home: Path) -> None:
    """From now on the commands are about the runs on this machine."""
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / _KEYWORD, f"{NAME}\n")


def connect(name: str, namespace: str | None, files: list[Path], home: Path) -> str:
    """Make a cluster that a kubeconfig has the current one, as ``kubectl config use-context`` does.

    Args:
        name: of a context, of a cluster, or of the EKS cluster that either is called after.
        namespace: becomes that of the context.
        files: kubeconfigs, as ``KUBECONFIG`` names them.
        home: of the runs on this machine.

    Returns:
        the context.

    Raises:
        ConfigError: there is no such cluster, or several.

    """
    contents = {file: _load(file) for file in files if file.is_file()}
    found = dict.fromkeys(_contexts(name, contents))
    if len(found) != 1:
        there = ", ".join(one["name"] for content in contents.values() for one in _in(content))
        what = f"is each of {', '.join(found)}" if found else "is not in any kubeconfig"
        raise ConfigError(
            f"--cluster-name: {name} {what}; there are: {there or 'none'}, and {NAME} for this "
            f"machine. For a cluster of EKS: aws eks update-kubeconfig --name {name}"
        )
    [context] = found
    changed = {next(iter(contents)): {"current-context": context}}
    for file, content in contents.items():
        for one in _in(content):
            if namespace is not None and one["name"] == context:
                one["context"]["namespace"] = namespace
                changed.setdefault(file, {})
    for file, change in changed.items():
        _store(file, {**contents[file], **change})
    with suppress(FileNotFoundError):
        (home / _KEYWORD).unlink()
    return context


def kubeconfigs(given: Path | None, environment: Mapping[str, str]) -> list[Path]:
    """The files that kubectl would read."""
    if given is not None:
        return [given]
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environment.get("HOME", "/")) / ".kube" / "config"]


def _contexts(name: str, contents: Mapping[Path, dict[str, Any]]) -> Iterator[str]:
    """Of this name; else those of this cluster. EKS calls both after the ARN of the cluster."""
    known = [one for content in contents.values() for one in _in(content)]
    exact = [one["name"] for one in known if one["name"] == name]
    yield from exact or (
        one["name"]
        for one in known
        if name in (one["context"].get("cluster"), *(_last(text) for text in _texts(one)))
    )


def _texts(context: dict[str, Any]) -> tuple[str, str]:
    return str(context["name"]), str(context["context"].get("cluster"))


def _last(arn: str) -> str:
    return arn.rpartition("/")[2]


def _in(content: dict[str, Any]) -> list[dict[str, Any]]:
    listed = content.get("contexts")
    return [
        one
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and "name" in one and isinstance(one.get("context"), dict)
    ]


def _load(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: is not a kubeconfig")
    return content


def _store(file: Path, content: dict[str, Any]) -> None:
    """In place of the file, for the eyes of its owner alone: it may hold a token."""
    target = file.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        yaml.safe_dump(content, stream, sort_keys=False)
    temporary.replace(target)
