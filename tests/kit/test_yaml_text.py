import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.yaml_text import to_yaml

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
WORDS = st.sampled_from(
    ["", "yes", "No", "ON", "null", "~", "1", "1e5", "0x1f", "1_000", "12:30:45", "2026-01-01",
     ".5", ".inf", "=", "<<", "- a", "a: b", "a #b", "#", "&a", "*a", "!x", "%", "@a", "`", "|",
     ">", "[", "{", "a\nb", " a", "a ", "a,b", "node-1", "two words", "\x85", "\u2028", "\x7f",
     "\U0001f600", "\ufeff", "a\tb"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXT, WORDS), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_what_was_written_is_read_again(value: object) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@pytest.mark.parametrize("value", [1e-5, 1e300, 0.1, -0.0, float("inf"), float("-inf")])
def test_a_number_stays_a_number(value: float) -> None:
    read = yaml.safe_load(to_yaml({"x": value}))["x"]

    assert isinstance(read, float)
    assert repr(read) == repr(value)


def test_people_can_read_it() -> None:
    value = {
        "node": "gpu-1",
        "faults": [{"reason": "Xid74", "codes": [74, 79]}, {"reason": "a: b", "codes": []}],
        "held": None,
        "labels": {},
    }

    assert to_yaml(value) == (
        "node: gpu-1\n"
        "faults:\n"
        "  - reason: Xid74\n"
        "    codes:\n"
        "      - 74\n"
        "      - 79\n"
        '  - reason: "a: b"\n'
        "    codes: []\n"
        "held: null\n"
        "labels: {}\n"
    )
    assert json.dumps(yaml.safe_load(to_yaml(value))) == json.dumps(value)
