"""Helm refuses what a process would refuse at its start, and nothing else."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from chart import HELM_CHART
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from holdfast.adapters.providers.settings import ProviderName
from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.controller.config import ControllerConfig
from holdfast.detectors.instance_types import INSTANCE_TYPES
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError

SCHEMA = json.loads((HELM_CHART / "values.schema.json").read_text(encoding="utf-8"))
CONFIGS = {"agentConfig": AgentConfig, "controllerConfig": ControllerConfig}

URLS = [
    "https://a.example/x",
    "https://a.example:8443",
    "https://[::1]:8443/x?y=1",
    "https://a:0/",
    "https://:80/",
    "https://",
    "https://u:p@a.example/",
    "http://127.0.0.1:8470/x",
    "http://localhost",
    "http://a.example/",
    "ftp://a.example/",
]
ARGUMENTS = ["{node}", "{nod}", "a{node}b{token}", "{foo{node}", "{node", "{}", '{"a": 1}', "a b"]
QUOTAS = ["0%", "0.5%", "99.9%", "100%", "100.0%", "100.1%", "150%", "-5%", "5", "1.5", "lots"]
DURATIONS = ["0s", "0.0s", "0h0m", "1ms", "90s", "1h30m", "-1s", "soon"]
TIMES = ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5+01:00", "2026-01-31T12:00:00", "2026-01-31"]
WORDS = ["", "x", "aws.x", "ml-cluster", "reboot", "replace", "none", "p9.large", "a b"]
EDGES: list[Any] = [
    *(-1, 0, 1, 2, 3, 50.5, 100, 100.5, 101, 100_000, True, False),
    *(
        *WORDS,
        *DURATIONS,
        *TIMES,
        *QUOTAS,
        *URLS,
        *(one.value for one in ProviderName),
        *list(INSTANCE_TYPES)[:2],
    ),
    *([], [""], ["/a"], ["job.finished"], ["job.over"], *([one] for one in ARGUMENTS)),
    *({}, {"a": "b"}, {"74": "none"}),
]
REQUIRED = {
    "notices.cloudwatch": {"log_group": "g"},
    "notices.webhook": {"url": URLS[0]},
    "provider.sagemaker": {"cluster": "c"},
    "provider.webhook": {"url": URLS[0]},
}
"""Keys without which there is no such table."""

ONLY_THE_PROCESS = ("must not be longer than", "a lease needs retry")
"""Comparisons of durations, which a JSON Schema cannot make."""


def leaves(part: dict[str, Any], path: str = "") -> Iterator[str]:
    """The dotted keys that are no tables."""
    for key, one in part["properties"].items():
        resolved = SCHEMA["definitions"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
        if "properties" in resolved:
            yield from leaves(resolved, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def table(values: dict[str, Any]) -> dict[str, Any]:
    """Nested tables from dotted keys."""
    whole: dict[str, Any] = {}
    for path, value in values.items():
        *parents, key = path.split(".")
        place = whole
        for depth, parent in enumerate(parents):
            needed = REQUIRED.get(".".join(parents[: depth + 1]), {})
            place = place.setdefault(parent, dict(needed))
        place[key] = value
    return whole


def refusal(name: str, config: dict[str, Any]) -> str:
    """What the process answers; empty if it takes the configuration."""
    try:
        parse_table(config, CONFIGS[name])
    except ConfigError as error:
        return str(error)
    return ""


def validator(name: str) -> Draft7Validator:
    return Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": SCHEMA["definitions"]})


KEYS = [(name, key) for name in CONFIGS for key in leaves(SCHEMA["definitions"][name])]


@pytest.mark.parametrize(("name", "key"), KEYS, ids=str)
def test_helm_takes_a_value_if_and_only_if_the_process_does(name: str, key: str) -> None:
    checks = validator(name)
    differs = []
    for value in EDGES:
        config = table({key: value})
        said = refusal(name, config)
        is_only_slurms = key.startswith("provider.re") and str(value).startswith("slurm-")
        needs_image = key.startswith("nodes.deep_check_") and not said
        is_known = is_only_slurms or needs_image or any(one in said for one in ONLY_THE_PROCESS)
        is_fit = checks.is_valid(config)
        if is_fit != (said == "") and not is_known:
            differs.append((value, is_fit, said))

    assert differs == [], (
        f"{key}: the process and the schema differ (value, schema, process): add the limit to"
        " tools/values_limits.py, then run: make reference"
    )


@given(st.data())
def test_helm_takes_no_pair_of_values_that_the_process_refuses(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CONFIGS)))
    keys = [key for one, key in KEYS if one == name]
    close = [key for key in keys if key.startswith(("provider.", "notices.", "source", "log_"))]
    chosen = data.draw(st.lists(st.sampled_from(close), min_size=2, max_size=5, unique=True))
    config = table({key: data.draw(st.sampled_from(EDGES)) for key in chosen})

    said = refusal(name, config)

    if said and not any(one in said for one in ONLY_THE_PROCESS):
        assert not validator(name).is_valid(config), said


@pytest.mark.parametrize(
    "config",
    [
        {"provider": {"replace": "webhook"}},
        {"provider": {"reboot": "webhook"}},
        {"provider": {"replace": "sagemaker"}},
        {"provider": {"replace": "command"}},
        {"provider": {"replace": "command", "command": {"replace": ["a"]}}},
        {"provider": {"replace": "karpenter", "reboot": "karpenter"}},
        {"provider": {"replace": "slurm-power"}},
        {"provider": {"cluster_api": {"context": "a"}}},
        {"nodes": {"deep_check_on_start": True}},
        {"nodes": {"deep_check_groups": ["gpu"]}},
        {"nodes": {"deep_check_pairs": True}, "kubernetes": {"check": {"image": ""}}},
        {"nodes": {"deep_check_every": "1d"}, "kubernetes": {}},
        {"notices": {"eventbridge": {}, "source": "aws.holdfast"}},
    ],
)
def test_a_setting_without_what_it_needs_is_refused(config: dict[str, Any]) -> None:
    assert not validator("controllerConfig").is_valid(config)


@pytest.mark.parametrize(
    "config",
    [
        {"provider": {"replace": "webhook", "webhook": {"url": URLS[0]}}},
        {"provider": {"replace": "command", "reboot": "none", "command": {"replace": ["a"]}}},
        {"provider": {"replace": "command", "command": {"replace": ["a"], "reboot": ["b"]}}},
        {"nodes": {"deep_check_on_start": True}, "kubernetes": {"check": {"image": "a"}}},
        {"nodes": {"deep_check_on_start": False}},
        {"nodes": {"deep_check_groups": []}},
        {"notices": {"eventbridge": {}, "source": "holdfast"}},
    ],
)
def test_a_setting_with_what_it_needs_is_taken(config: dict[str, Any]) -> None:
    validator("controllerConfig").validate(config)
    assert refusal("controllerConfig", config) == ""


def _values() -> Iterator[tuple[str, Any]]:
    """Every value of values.yaml with its path."""
    pending = [("", yaml.safe_load((HELM_CHART / "values.yaml").read_text(encoding="utf-8")))]
    while pending:
        path, value = pending.pop()
        if path:
            yield path, value
        if isinstance(value, dict) and not path.endswith(("affinity", "resources", "labels")):
            pending += [(f"{path}.{key}".lstrip("."), one) for key, one in value.items()]


@pytest.mark.parametrize(("path", "default"), list(_values()), ids=lambda one: str(one)[:40])
def test_a_value_of_the_wrong_type_is_refused(path: str, default: Any) -> None:
    kinds = {str: "a text", int: 1, bool: True, list: [1], dict: {"a": 1}}
    wrong = [one for kind, one in kinds.items() if type(default) is not kind]
    if path == "agent.maxUnavailable":
        wrong.remove(1)
    checks = Draft7Validator(SCHEMA)

    assert [one for one in wrong if checks.is_valid(_nested(path, one))] == []


def _nested(path: str, value: Any) -> Any:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value
