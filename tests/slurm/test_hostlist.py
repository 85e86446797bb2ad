from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.hostlist import LIMIT, expand
from tests.engines.slurm_cluster import SlurmCluster

names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", ()),
        ("node1", ("node1",)),
        ("node[1-3]", ("node1", "node2", "node3")),
        ("node[1,3],login", ("node1", "node3", "login")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("r[1-2]c[1-2]", ("r1c1", "r1c2", "r2c1", "r2c2")),
        ("a[1-2]-ib", ("a1-ib", "a2-ib")),
    ],
)
def test_an_expression_stands_for_its_names(expression: str, expected: tuple[str, ...]) -> None:
    assert expand(expression) == expected


@pytest.mark.parametrize(
    "expression",
    ["node[1-3", "node1-3]", "node[3-1]", "node[a-b]", "node[]", "a,,b", ",", "n[0-999999999]"],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"not a node list|invalid range"):
        expand(expression)


def test_no_expression_fills_the_memory() -> None:
    with pytest.raises(ValueError, match=f"more than {LIMIT}"):
        expand("n[1-9999]x[1-9999]")


@given(st.text(alphabet="n[]-,019", max_size=12))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    with suppress(ValueError):
        expand(text)


@given(st.lists(names, min_size=1, max_size=5))
def test_a_list_of_names_stands_for_itself(known: list[str]) -> None:
    assert expand(",".join(known)) == tuple(known)


def test_slurm_itself_says_the_same(slurm: SlurmCluster) -> None:
    for expression in ("node[1-3,07],login", "r[1-2]c[01-02]", "a[9-11]"):
        reported = slurm.run("scontrol", "show", "hostnames", expression).split()
        assert expand(expression) == tuple(reported)
