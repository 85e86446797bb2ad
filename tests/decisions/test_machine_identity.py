"""Laws of the comparison of a node with the machine of its provider ID."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.machine_identity import is_machine_of, shown_identity
from tests.ports.builders import a_node

LABELS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda one: one != "localhost")
HOSTS = st.builds(lambda label, domain: f"{label}{domain}", LABELS, st.sampled_from(["", ".a.b"]))
IPS = st.integers(0, 9).map(lambda n: f"10.0.0.{n}") | st.integers(1, 9).map(lambda n: f"fd00::{n}")
ADDRESSES = IPS | HOSTS
SHARED = st.sampled_from(
    ["", " ", "127.0.0.1", "::1", "0.0.0.0", "fe80::1", "169.254.169.254", "localhost"]  # noqa: S104
)


@given(st.lists(ADDRESSES), st.lists(SHARED), HOSTS)
def test_a_machine_of_which_nothing_is_known_is_nobodys(ours, shared, name) -> None:
    assert not is_machine_of(a_node(name=name, addresses=tuple(ours)), shared)


@given(st.lists(ADDRESSES), st.lists(ADDRESSES), HOSTS, st.data())
def test_one_name_or_address_in_common_is_enough(ours, theirs, name, data) -> None:
    one = data.draw(st.sampled_from([name, *ours]))
    node = a_node(name=name, addresses=tuple(ours))

    assert is_machine_of(node, [*theirs, f" {one.upper()}. "])


@pytest.mark.attack
@given(st.lists(IPS), st.lists(IPS), HOSTS)
def test_machines_without_a_common_address_are_two(ours, theirs, name) -> None:
    node = a_node(name=name, addresses=tuple(ours))

    assert is_machine_of(node, theirs) == bool(set(ours) & set(theirs))


def test_hosts_of_two_domains_are_two_and_a_bare_name_is_in_any() -> None:
    node = a_node(name="ip-10-0-0-5.us-west-2.compute.internal")
    assert is_machine_of(node, ["ip-10-0-0-5"])
    assert not is_machine_of(node, ["ip-10-0-0-5.eu-west-1.compute.internal"])
    assert is_machine_of(a_node(name="n", addresses=("10.0.0.5",)), ["::ffff:10.0.0.5"])
    assert not is_machine_of(a_node(name="10", addresses=("10.0.0.5",)), ["10.0.0.6"])


def test_messages_name_each_once() -> None:
    assert shown_identity(["a", "", "a", "10.0.0.1"]) == "a, 10.0.0.1"
    assert shown_identity([]) == "no name or address"
    assert len(shown_identity(["9" * 5000, "b"])) <= 300
