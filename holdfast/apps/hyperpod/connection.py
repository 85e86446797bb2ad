"""Selects the cluster of HyperPod's commands, as ``connect-cluster`` does."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.adapters.kubernetes.client.kubeconfig import load_kubeconfig
from holdfast.apps.hyperpod.local import NAME
from holdfast.kit.files import write_atomically
from holdfast.model.errors import ConfigError

_LOCAL_FILE: Final = "connected-cluster"
"""File in the home directory of runs; exists while the local cluster is selected."""


def is_local(home: Path) -> bool:
    """Whether the commands apply to the runs on this machine."""
    return (home / _LOCAL_FILE).is_file()


def connect_local(home: Path) -> None:
    """Select the runs on this machine for later commands."""
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / _LOCAL_FILE, f"{NAME}\n")


def connect(name: str, namespace: str | None, files: list[Path], home: Path) -> str:
    """Make a cluster of the kubeconfigs the current one, like ``kubectl config use-context``.

    Args:
        name: name of a context, of a cluster, or of the EKS cluster in either name.
        namespace: new namespace of the context; None to leave it unchanged.
        files: kubeconfigs, in the order of ``KUBECONFIG``.
        home: home directory of the runs on this machine.

    Returns:
        Name of the context.

    Raises:
        ConfigError: no context matches, or several do.

    """
    contents = {file: load_kubeconfig(file) for file in files if file.is_file()}
    found = dict.fromkeys(_contexts(name, contents))
    if len(found) != 1:
        there = ", ".join(one["name"] for content in contents.values() for one in _in(content))
        what = f"is ambiguous ({', '.join(found)})" if found else "is not in any kubeconfig"
        raise ConfigError(
            f"--cluster-name: {name} {what}; clusters: {there or 'none'}, and {NAME} for this "
            f"machine. For an EKS cluster, run: aws eks update-kubeconfig --name {name}"
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
        (home / _LOCAL_FILE).unlink()
    return context


def kubeconfigs(given: Path | None, environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfigs that kubectl would read."""
    if given is not None:
        return [given]
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path(environment.get("HOME", "/")) / ".kube" / "config"]


def _contexts(name: str, contents: Mapping[Path, dict[str, Any]]) -> Iterator[str]:
    """Yield the contexts with this name, or else those of the cluster with this name.

    EKS names both after the ARN of the cluster.
    """
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


def _store(file: Path, content: dict[str, Any]) -> None:
    """Replace a file with mode 0600, as it may contain a token."""
    target = file.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        yaml.safe_dump(content, stream, sort_keys=False)
    temporary.replace(target)
