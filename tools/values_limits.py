"""Limits in the schema of the chart's values, beyond the types of settings.

Classes check ranges and pairs of settings in ``__post_init__``, where nothing can read them. The
same limits are here as JSON Schema, by class, so that helm refuses what a process would refuse at
its start. ``tests/deploy/test_values_limits.py`` compares the two.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.adapters.notices.settings import FOR_PEOPLE
from holdfast.adapters.providers.settings import CLUSTER, PLACEHOLDERS, ProviderName
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


_DURATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "AgentConfig": ("heartbeat", "corroboration_window"),
    "AwsSettings": ("connect_timeout", "read_timeout"),
    "CommandSettings": ("timeout",),
    "DetectorSettings": ("every",),
    "ElectionSettings": ("duration", "renew_deadline", "retry"),
    "JobPolicy": ("app_backoff_reset", "suspect_window"),
    "NoticeWebhook": ("timeout",),
    "RemediationPolicy": (
        "heartbeat_timeout",
        "join_timeout",
        "reboot_timeout",
        "replace_timeout",
        "provider_retry",
        "provider_retry_max",
        "deep_check_timeout",
        "deep_check_every",
        "pair_timeout",
        "breaker_window",
        "offender_window",
        "incident_retention",
    ),
    "WebhookSettings": ("timeout",),
}
"""Longer than 0s."""

LIMITS: Final[Mapping[tuple[str, str], Schema]] = {
    **{(kind, key): _POSITIVE for kind, keys in _DURATIONS.items() for key in keys},
    ("AgentConfig", "instance_type"): {
        "enum": [f"{prefix}{name}" for prefix in ("", "ml.") for name in INSTANCE_TYPES]
    },
    ("CommandSettings", "reboot"): {"items": {"type": "string", **_ARGUMENT}},
    ("CommandSettings", "replace"): {"items": {"type": "string", **_ARGUMENT}},
    ("ExpectedDevices", "efa"): {"minimum": 0},
    ("ExpectedDevices", "gpus"): {"minimum": 0},
    ("ExpectedDevices", "neuron_devices"): {"minimum": 0},
    ("RemediationPolicy", "incidents_kept"): {"minimum": 1},
    ("JobPolicy", "suspect_failures"): {"minimum": 0, "not": {"const": 1}},
    ("KubernetesSettings", "burst"): {"minimum": 1},
    ("KubernetesSettings", "requests_per_second"): {"exclusiveMinimum": 0},
    ("NoticeSettings", "for_people"): {
        "items": {"enum": sorted({one.name for one in Event.__subclasses__()} | set(FOR_PEOPLE))}
    },
    ("NoticeWebhook", "url"): _URL,
    ("ProviderConfig", "reboot"): _names("can_reboot"),
    ("ProviderConfig", "replace"): _names("can_replace"),
    ("RemediationPolicy", "breaker_min_nodes"): {"minimum": 1},
    ("RemediationPolicy", "breaker_share"): {"exclusiveMinimum": 0, "maximum": 100},
    ("RemediationPolicy", "max_checking"): _SOME,
    ("RemediationPolicy", "offender_faults"): {"minimum": 1},
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
            _when(_chosen(ProviderName.WEBHOOK), {"required": ["webhook"]}),
            _when(_chosen(ProviderName.SAGEMAKER), {"required": ["sagemaker"]}),
            _when(_chosen(ProviderName.PLUGIN), {"required": ["plugin"]}),
            _when(
                _is("replace", ProviderName.COMMAND.value),
                _within("command.replace", {"minItems": 1}),
            ),
            _when(_REBOOTS_BY_COMMAND, _within("command.reboot", {"minItems": 1})),
        ]
    },
}
"""More about the tables of classes: what settings need beside them."""
