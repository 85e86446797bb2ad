"""Reads the ``config.yaml`` of ``hyperpod start-job``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from holdfast.apps.hyperpod.job_request import Claim, HostVolume
from holdfast.model.errors import ConfigError
from holdfast.model.names import Labels

T = TypeVar("T")

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"

Values = dict[str, Any]
"""Fields of a ``JobRequest`` that are given."""


def read_config(path: Path) -> Values:
    """Return the fields of a job in a file, without those that the file omits.

    Raises:
        ConfigError: the file cannot be read, or values have the wrong type.

    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    reader = _Reader(content if isinstance(content, dict) else {})
    if not isinstance(content, dict):
        reader.problems.append(f"expected a mapping, got {type(content).__name__}")
    found = _read(reader)
    if reader.problems:
        raise ConfigError(f"{path}: {problem}" for problem in reader.problems)
    return {key: value for key, value in found.items() if value is not None}


def _read(reader: "_Reader") -> Values:
    labels = reader.texts("cluster.cluster_config.custom_labels")
    chosen = dict(labels or {})
    return {
        "name": reader.text("training_cfg.run.name"),
        "nodes": reader.number("training_cfg.run.nodes"),
        "tasks_per_node": reader.number("training_cfg.run.ntasks_per_node"),
        "entry_script": reader.text("training_cfg.entry_script"),
        "script_args": reader.arguments("training_cfg.script_args"),
        "image": reader.text("container"),
        "environment": reader.texts("env_vars"),
        "instance_type": reader.text("cluster.instance_type"),
        "namespace": reader.text("cluster.cluster_config.namespace"),
        "pull_policy": reader.text("cluster.cluster_config.pullPolicy"),
        "restart_policy": reader.text("cluster.cluster_config.restartPolicy"),
        "scheduler": reader.text("cluster.cluster_config.scheduler_type"),
        "service_account": reader.text("cluster.cluster_config.service_account_name"),
        "priority_class": reader.text("cluster.cluster_config.priority_class_name"),
        "queue": chosen.pop(_QUEUE, None),
        "priority": chosen.pop(_PRIORITY, None),
        "labels": chosen or None,
        "required": reader.choices("cluster.cluster_config.label_selector.required"),
        "preferred": reader.choices("cluster.cluster_config.label_selector.preferred"),
        "weights": reader.numbers("cluster.cluster_config.label_selector.weights"),
        "volumes": reader.volumes("cluster.cluster_config.volumes"),
        "claims": reader.claims("cluster.cluster_config.persistent_volume_claims"),
        **_resumption(reader),
    }


def _resumption(reader: "_Reader") -> Values:
    names = Labels()
    key = "cluster.cluster_config.annotations"
    given = reader.mapping(key) or {}
    resume = given.get(names.enable_job_auto_resume)
    retries = given.get(names.job_max_retry_count)
    if (resume is None) != (retries is None):
        reader.problems.append(
            f"{key}: expected both {names.enable_job_auto_resume} and {names.job_max_retry_count}, "
            "or neither"
        )
    if resume is None or retries is None:
        return {}
    is_on = str(resume).lower() == "true"
    if not str(retries).isdecimal():
        reader.problems.append(
            f"{key}.{names.job_max_retry_count}: expected a number, got {retries!r}"
        )
        return {}
    return {"auto_resume": is_on, "max_retry": int(retries) if is_on else None}


class _Reader:
    """Reads values and collects problems; a missing or invalid value is None."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content
        self.problems: list[str] = []

    def text(self, key: str) -> str | None:
        return self._typed(key, str, "text")

    def number(self, key: str) -> int | None:
        value = self._at(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        self._wrong(key, value, "a whole number")
        return None

    def numbers(self, key: str) -> tuple[int, ...] | None:
        value = self._at(key)
        if value is None:
            return None
        if isinstance(value, list) and all(type(one) is int for one in value):
            return tuple(value)
        self._wrong(key, value, "a list of whole numbers")
        return None

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        return self._typed(key, dict, "a mapping")

    def texts(self, key: str) -> Mapping[str, str] | None:
        value = self.mapping(key)
        if value is None:
            return None
        return {str(name): _plain(one) for name, one in value.items()}

    def choices(self, key: str) -> Mapping[str, tuple[str, ...]] | None:
        value = self.mapping(key)
        if value is None:
            return None
        if all(isinstance(one, list) for one in value.values()):
            return {str(name): tuple(map(_plain, one)) for name, one in value.items()}
        self._wrong(key, value, "labels with a list of values each")
        return None

    def arguments(self, key: str) -> tuple[str, ...] | None:
        value = self._at(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, dict | str) for one in value):
            self._wrong(key, value, "a list of {--flag: value}")
            return None
        found: list[str] = []
        for one in value:
            found += [one] if isinstance(one, str) else _flags(one)
        return tuple(found)

    def volumes(self, key: str) -> tuple[HostVolume, ...] | None:
        entries = self._entries(key, ("volumeName", "hostPath", "mountPath"))
        if entries is None:
            return None
        return tuple(
            HostVolume(
                name=one["volumeName"], host_path=one["hostPath"], mount_path=one["mountPath"]
            )
            for one in entries
        )

    def claims(self, key: str) -> tuple[Claim, ...] | None:
        entries = self._entries(key, ("claimName", "mountPath"))
        if entries is None:
            return None
        return tuple(Claim(name=one["claimName"], mount_path=one["mountPath"]) for one in entries)

    def _entries(self, key: str, names: Sequence[str]) -> list[dict[str, str]] | None:
        value = self._at(key)
        if value is None:
            return None
        is_right = isinstance(value, list) and all(
            isinstance(one, dict) and all(isinstance(one.get(name), str) for name in names)
            for one in value
        )
        if is_right:
            return list(value)
        self._wrong(key, value, f"a list with {', '.join(names)} each")
        return None

    def _typed(self, key: str, kind: type[T], expected: str) -> T | None:
        value = self._at(key)
        if value is None or isinstance(value, kind):
            return value
        self._wrong(key, value, expected)
        return None

    def _at(self, key: str) -> Any:
        found: Any = self._content
        for part in key.split("."):
            if not isinstance(found, dict):
                return None
            found = found.get(part)
        return found

    def _wrong(self, key: str, value: object, expected: str) -> None:
        self.problems.append(f"{key}: expected {expected}, got {value!r}")


def _flags(entry: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in entry.items():
        found.append(str(name))
        if value is not None and value != "":
            found.append(_plain(value))
    return found


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
