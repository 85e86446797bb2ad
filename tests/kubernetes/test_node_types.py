"""Resources of nodes by instance type."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.jobs.node_types import node_types, quantity
from holdfast.model.team_queues import CPU, MEMORY


@pytest.mark.parametrize(
    ("text", "value"),
    [("96", 96), ("95500m", Fraction(191, 2)), ("0.5", Fraction(1, 2)), ("1Ki", 1024),
     ("2Mi", 2 << 20), ("1056764Ki", 1056764 << 10), ("1k", 1000), ("1.5G", 1_500_000_000),
     ("1Ei", 1 << 60), ("3T", 3 * 10**12)],
)  # fmt: skip
def test_quantities_of_kubernetes(text, value) -> None:
    assert quantity(text) == value


@given(text=st.text(max_size=30))
def test_no_text_makes_it_raise(text) -> None:
    assert quantity(text) is None or quantity(text) >= 0


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1 Gi", "Gi", "1K", "9" * 21, "1.", "\u0661"])
def test_other_text_is_no_quantity(text) -> None:
    assert quantity(text) is None


def node(kind: str, **allocatable: str):
    return {
        "metadata": {"labels": {"node.kubernetes.io/instance-type": kind} if kind else None},
        "status": {"allocatable": allocatable},
    }


def test_nodes_are_counted_and_the_largest_counts() -> None:
    nodes = [
        node("p5", cpu="4", memory="1Gi", pods="110"),
        node("p5", cpu="3500m", memory="2Gi", **{"nvidia.com/gpu": "8", "hugepages-2Mi": "0"}),
        node("", cpu="1"),
        node("ml.m5", cpu="bad"),
    ]
    found = node_types(nodes)

    assert set(found) == {"ml.p5", "ml.m5"}
    assert (found["ml.p5"].label, found["ml.p5"].nodes) == ("p5", 2)
    assert found["ml.p5"].resources == {CPU: 4000, MEMORY: 2 << 30, "nvidia.com/gpu": 8}
    assert (found["ml.m5"].label, found["ml.m5"].resources) == ("ml.m5", {CPU: 0, MEMORY: 0})


@pytest.mark.parametrize("order", [("p5", "ml.p5", "p5"), ("ml.p5", "p5", "p5")])
def test_labels_of_sagemaker_count_before_those_of_ec2(order) -> None:
    found = node_types([node(kind, cpu="1") for kind in order])

    assert (found["ml.p5"].label, found["ml.p5"].nodes) == ("ml.p5", 1)
