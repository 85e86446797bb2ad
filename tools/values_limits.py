"""Limits in the schema of the chart's values, beyond the types of settings.

Classes check ranges and pairs of settings in ``__post_init__``, where nothing can read them. Two
ranges are found by trying: durations longer than 0s, and counts of 1 or more. The other limits are
here as JSON Schema, by class, so that helm refuses what a process would refuse at its start.
``tests/deploy/test_values_limits.py`` compares the two.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

from holdfast.adapters.notices.settings import FOR_PEOPLE
from holdfast.adapters.providers.settings import CLUSTER, PLACEHOLDERS, ProviderConfig, ProviderName
from holdfast.detectors.instance_types import INSTANCE_TYPES
from holdfast.model.events import Event

Schema = Mapping[str, Any]

_POSITIVE: Final[Schema] = {"allOf": [{"pattern": "[1-9]"}]}
"""Of a duration: one digit at least is not zero."""

_SOME: Final[Schema] = {"minimum": 1, **_POSITIVE}
"""Of a quota: not 0 and not 0%."""

_LOOPBACK: Final = r"localhost|127(\.[0-9]{1,3}){3}|\[::1\]"
_PORT: Final = "(:[1-9][0-9]{0,4})?"
_URL: Final[Schema] = {
    "pattern": rf"^(https://([^\s/?#@:\[\]]+|\[[0-9a-fA-F:]+\]){_PORT}"
    rf"|http://({_LOOPBACK}){_PORT})([/?#]\S*)?$"
}
_ARGUMENT: Final[Schema] = {
    "pattern": rf"^[^{{]*(\{{(|{'|'.join(PLACEHOLDERS)})\}}[^{{]*|\{{\w*([^\w}}{{][^{{]*)?)*$"
}
"""Every word in braces is a placeholder."""


def _names(able: str) -> Schema:
    names = [one for one in ProviderName if getattr(one, able) or one is ProviderName.NONE]
    return {"enum": [one.value for one in names if not one.startswith("slurm-")]}


LIMITS: Final[Mapping[tuple[str, str], Schema]] = {
    ("AgentConfig", "instance_type"): {
        "enum": [f"{prefix}{name}" for prefix in ("", "ml.") for name in INSTANCE_TYPES]
    },
    ("CommandSettings", "reboot"): {"items": {"type": "string", **_ARGUMENT}},
    ("CommandSettings", "replace"): {"items": {"type": "string", **_ARGUMENT}},
    **{("ElectionSettings", key): _POSITIVE for key in ("duration", "renew_deadline", "retry")},
    ("ExpectedDevices", "efa"): {"minimum": 0},
    ("ExpectedDevices", "gpus"): {"minimum": 0},
    ("ExpectedDevices", "neuron_devices"): {"minimum": 0},
    ("JobPolicy", "suspect_failures"): {"minimum": 0, "not": {"const": 1}},
    ("KubernetesSettings", "requests_per_second"): {"exclusiveMinimum": 0},
    ("NoticeSettings", "for_people"): {
        "items": {"enum": sorted({one.name for one in Event.__subclasses__()} | set(FOR_PEOPLE))}
    },
    ("NoticeWebhook", "url"): _URL,
    ("ProviderConfig", "reboot"): _names("can_reboot"),
    ("ProviderConfig", "replace"): _names("can_replace"),
    ("RemediationPolicy", "breaker_share"): {"exclusiveMinimum": 0, "maximum": 100},
    ("RemediationPolicy", "max_checking"): _SOME,
    ("RemediationPolicy", "silent_remedy"): {"enum": ["reboot", "replace"]},
    ("SageMakerSettings", "cluster"): {"pattern": f"^({CLUSTER.pattern})$"},
    ("WebhookSettings", "url"): _URL,
}
"""More about single settings: class and key."""


def _is(key: str, value: object) -> Schema:
    return {"properties": {key: {"const": value}}, "required": [key]}


def _lists(key: str, value: object) -> Schema:
    return {"properties": {key: {"contains": {"const": value}}}, "required": [key]}


def _when(condition: Schema, needed: Schema) -> Schema:
    return {"if": condition, "then": needed}


def _within(path: str, last: Schema) -> Schema:
    """The last of a dotted path of keys, all of which are there."""
    key, _, rest = path.partition(".")
    return {"required": [key], "properties": {key: _within(rest, last) if rest else last}}


def _chosen(name: ProviderName) -> Schema:
    return {"anyOf": [_is("replace", name.value), _is("reboot", name.value)]}


_REBOOTS_BY_COMMAND: Final[Schema] = {
    "anyOf": [
        _is("reboot", ProviderName.COMMAND.value),
        {**_is("replace", ProviderName.COMMAND.value), "not": {"required": ["reboot"]}},
    ]
}
_IMAGE: Final[Schema] = _within("kubernetes.check.image", {"minLength": 1})

PAIRS: Final[Mapping[str, Schema]] = {
    "AgentConfig": {
        "allOf": [_when(_is("source", "files"), _within("log_files", {"minItems": 1}))]
    },
    "ClusterApiSettings": {
        "allOf": [
            _when(_within("context", {"minLength": 1}), {"required": ["kubeconfig"]}),
        ]
    },
    "ControllerConfig": {
        "allOf": [
            _when(_within("nodes.deep_check_on_start", {"const": True}), _IMAGE),
            _when(_within("nodes.deep_check_pairs", {"const": True}), _IMAGE),
            _when(_within("nodes.deep_check_every", {"type": "string"}), _IMAGE),
        ]
    },
    "KubernetesSettings": {
        "allOf": [_when(_lists("job_kinds", "TrainJob"), _lists("job_kinds", "JobSet"))]
    },
    "NoticeSettings": {
        "allOf": [
            _when(
                {"required": ["eventbridge"]},
                {"properties": {"source": {"not": {"pattern": "^aws\\."}}}},
            )
        ]
    },
    "RemediationPolicy": {
        "allOf": [
            _when(
                _within("deep_check_groups", {"minItems": 1}),
                {
                    "anyOf": [
                        _is("deep_check_on_start", value=True),
                        {"required": ["deep_check_every"]},
                    ]
                },
            )
        ]
    },
    "ProviderConfig": {
        "allOf": [
            *(
                _when(_chosen(name), {"required": [name.key]})
                for name in ProviderName
                if name.key in {one.name for one in fields(ProviderConfig) if one.default is None}
            ),
            _when(
                _is("replace", ProviderName.COMMAND.value),
                _within("command.replace", {"minItems": 1}),
            ),
            _when(_REBOOTS_BY_COMMAND, _within("command.reboot", {"minItems": 1})),
        ]
    },
}
"""More about the tables of classes: what settings need beside them."""

_EXAMPLES: Final[Mapping[str, Any]] = {"url": "https://a.example", "cluster": "c", "node": "n"}
"""Values of settings without a default."""


def tried_limits(kind: type, key: str, hint: object) -> Schema:
    """Return the range of a setting of the dataclass ``kind``, by the values that it refuses."""
    if hint in (timedelta, timedelta | None):
        return _POSITIVE if _refuses(kind, key, timedelta(0), "longer than 0s") else {}
    return {"minimum": 1} if hint is int and _refuses(kind, key, 0, "1 or more") else {}


def _refuses(kind: type, key: str, value: object, expected: str) -> bool:
    settings = {one.name: _EXAMPLES[one.name] for one in fields(kind) if one.name in _EXAMPLES}
    try:
        kind(**{**settings, key: value})
    except ValueError as error:
        return f"{key} must be {expected}" in str(error)
    except TypeError as error:
        raise TypeError(f"add an example of the missing setting to _EXAMPLES: {error}") from error
    return False
