"""Rules on a job's log, as people write them."""

import json
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.log_rule_text import RULES_LIMIT, TEXT_LIMIT, rules_of
from holdfast.decisions.log_rules import Comparison, JobLogRule

# As in the documentation of HyperPod's training operator.
PUBLISHED = r"""
- name: "JobStart"
  logPattern: ".*Experiment configuration.*"
  expectedStartCutOffInSeconds: 120
- name: "JobHangingDetection"
  logPattern: ".*\\[Epoch 0 Batch \\d+.*'training_loss_step': (\\d+(\\.\\d+)?).*"
  expectedRecurringFrequencyInSeconds: 300
  expectedStartCutOffInSeconds: 600
- name: "LowThroughputDetection"
  logPattern: ".*\\[Epoch 0 Batch \\d+.*'samples\\/sec': (\\d+(\\.\\d+)?).*"
  metricThreshold: 80
  operator: "lteq"
  metricEvaluationDataPoints: 25
"""
GOOD = {"name": "r", "logPattern": "x", "expectedStartCutOffInSeconds": 60}
PACE = {"name": "r", "logPattern": "(x)"}


def read(*rules: Any):
    return rules_of(json.dumps(rules), "rules")


def reported(*rules: Any) -> list[tuple[str, str]]:
    found, rejected = read(*rules)
    assert found == ()
    return [(one.key, one.value) for one in rejected]


def test_published_rules_are_read():
    rules, rejected = rules_of(PUBLISHED, "rules")

    assert rejected == ()
    assert rules == (
        JobLogRule(
            name="JobStart",
            pattern=".*Experiment configuration.*",
            start_cutoff=timedelta(minutes=2),
        ),
        JobLogRule(
            name="JobHangingDetection",
            pattern=r".*\[Epoch 0 Batch \d+.*'training_loss_step': (\d+(\.\d+)?).*",
            frequency=timedelta(minutes=5),
            start_cutoff=timedelta(minutes=10),
        ),
        JobLogRule(
            name="LowThroughputDetection",
            pattern=r".*\[Epoch 0 Batch \d+.*'samples\/sec': (\d+(\.\d+)?).*",
            threshold=80.0,
            comparison=Comparison.LTEQ,
            data_points=25,
        ),
    )


def test_json_and_yaml_say_the_same():
    rules = yaml.safe_load(PUBLISHED)
    rules += [{"name": "f", "logPattern": "é", "faultOnMatch": True, "stopPattern": "b"}]

    texts = json.dumps(rules), json.dumps(rules, indent="\t"), yaml.safe_dump(rules)

    assert len({rules_of(text, "rules") for text in texts}) == 1
    assert rules_of(texts[0], "rules")[0][3] == JobLogRule(
        name="f", pattern="é", fault_on_match=True, stop_pattern="b"
    )


def test_a_field_that_is_empty_is_not_there():
    assert read({**GOOD, "stopPattern": "", "operator": None}) == read(GOOD)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 7),
        ("name", "x" * 64),
        ("name", "a\nb"),
        ("logPattern", ["x"]),
        ("logPattern", "x" * 513),
        ("stopPattern", "x" * 513),
        ("expectedStartCutOffInSeconds", 0),
        ("expectedStartCutOffInSeconds", -1),
        ("expectedStartCutOffInSeconds", 2592001),
        ("expectedStartCutOffInSeconds", 10**400),
        ("expectedStartCutOffInSeconds", "5m"),
        ("expectedStartCutOffInSeconds", True),
        ("expectedRecurringFrequencyInSeconds", "nan"),
        ("expectedRecurringFrequencyInSeconds", 0),
        ("metricThreshold", {}),
        ("metricThreshold", "inf"),
        ("operator", "<"),
        ("faultOnMatch", "yes"),
        ("faultOnMatch", 1),
        ("logpattern", "x"),
    ],
)
def test_a_value_that_cannot_be_used_is_reported_and_its_rule_left_out(field: str, value: Any):
    rules, rejected = read({**GOOD, field: value}, {**GOOD, "name": "other"})

    assert [rule.name for rule in rules] == ["other"]
    (one,) = rejected
    assert one.key == f"rules[0].{field}"
    assert one.expected


@pytest.mark.parametrize("count", [0, -1, 1.5, 10_001, "two", True])
def test_data_points_are_counted(count: Any):
    rule = {**PACE, "metricThreshold": 1, "operator": "lt", "metricEvaluationDataPoints": count}

    assert reported(rule) == [("rules[0].metricEvaluationDataPoints", str(count))]


def test_yaml_takes_text_for_nothing_else():
    text = "- {name: 2026-01-01, logPattern: yes, expectedStartCutOffInSeconds: 60}\n"

    ((rule,), rejected) = rules_of(text, "rules")
    (_, minutes) = rules_of(text.replace("60", "1:30"), "rules")

    assert (rule.name, rule.pattern, rejected) == ("2026-01-01", "yes", ())
    assert [one.value for one in minutes] == ["1:30"]


@pytest.mark.parametrize("missing", ["name", "logPattern"])
def test_name_and_pattern_are_needed(missing: str):
    assert reported({key: value for key, value in GOOD.items() if key != missing}) == [
        (f"rules[0].{missing}", "")
    ]


def test_limits_are_inclusive():
    (rule,), rejected = read({**PACE, "logPattern": "x" * 512, "name": "n" * 63,
        "expectedStartCutOffInSeconds": 2592000, "metricThreshold": -1e300, "operator": "eq",
        "metricEvaluationDataPoints": 10_000})  # fmt: skip

    assert rejected == ()
    assert (rule.start_cutoff, rule.data_points) == (timedelta(days=30), 10_000)


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (PACE, "rules[0]"),
        ({**PACE, "faultOnMatch": False}, "rules[0]"),
        ({**PACE, "metricThreshold": 0}, "rules[0].operator"),
        ({**GOOD, "operator": "gt"}, "rules[0].operator"),
        ({**GOOD, "metricEvaluationDataPoints": 2}, "rules[0].metricEvaluationDataPoints"),
        ({**GOOD, "faultOnMatch": True}, "rules[0].expectedStartCutOffInSeconds"),
    ],
)
def test_fields_that_make_no_sense_together_are_reported(rule: dict[str, Any], key: str):
    assert [where for where, _ in reported(rule)] == [key]


def test_names_are_kept_apart():
    rules, rejected = read(GOOD, {**GOOD, "logPattern": "y"})

    assert [rule.pattern for rule in rules] == ["x"]
    assert [one.key for one in rejected] == ["rules[1].name"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "7",
        "[",
        "- [",
        json.dumps([GOOD] * (RULES_LIMIT + 1)),
        " " * (TEXT_LIMIT + 1),
        "[" * 9999,
        "{[]: 1}",
        "\x00",
        "- &a [*a]",
        "!!python/object:os.system x",
    ],
)
def test_what_is_no_list_of_rules_is_reported_once(text: str):
    rules, rejected = rules_of(text, "rules")

    assert rules == ()
    assert len(rejected) == 1
    assert rejected[0].key.startswith("rules")


def test_aliases_cannot_make_a_message_endless():
    doubled = "".join(f"- &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 19))

    _, rejected = rules_of(f"- &a0 [x]\n{doubled}", "rules")

    assert {one.value for one in rejected} == {"a list"}


def test_not_more_mistakes_are_reported_than_anybody_reads():
    _, rejected = read({**GOOD, **{f"x{n}": 1 for n in range(1000)}})

    assert len(rejected) == 20


fields = st.sampled_from([*GOOD, "metricThreshold", "operator", "faultOnMatch", "other"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(fields, values) | values, max_size=5) | st.text())
def test_no_text_makes_reading_fail(content: Any):
    text = content if isinstance(content, str) else json.dumps(content)
    for form in (text, yaml.safe_dump(content)):
        rules, rejected = rules_of(form, "rules")
        assert rules or rejected


def test_the_list_of_a_hyperpod_object_is_accepted_with_its_key():
    assert rules_of(json.dumps({"logMonitoringConfiguration": [GOOD]}), "k") == rules_of(
        json.dumps([GOOD]), "k"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"name": "r", "logPattern": "a\\d"}]', "JSON or YAML: Invalid \\escape: line 1"),
        ('- name: r\n  logPattern: "a\\d"\n', "JSON or YAML: line 2: found unknown escape"),
    ],
)
def test_a_mistake_is_reported_in_the_format_of_the_text(text: str, expected: str):
    ((_, _, found),) = rules_of(text, "k")[1]

    assert found.startswith(expected)
