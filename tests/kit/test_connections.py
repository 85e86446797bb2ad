from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.connections import ConnectionLimits, connection_to_replace

LIMITS = st.builds(ConnectionLimits, total=st.integers(1, 8), per_address=st.integers(1, 8))


@dataclass(frozen=True)
class Opened:
    address: str
    replacement_order: float


@given(LIMITS, st.lists(st.sampled_from("abcd"), max_size=40))
def test_limits_hold_and_only_the_largest_client_loses_its_oldest_connection(
    limits: ConnectionLimits, addresses: list[str]
) -> None:
    opened: list[Opened] = []
    for time, address in enumerate(addresses):
        before = Counter(one.address for one in opened)
        closed = connection_to_replace(opened, address, limits)
        is_full = len(opened) == limits.total or before[address] == limits.per_address
        assert (closed is not None) == is_full
        if closed is not None:
            same = [one for one in opened if one.address == closed.address]
            assert closed == same[0]
            assert before[closed.address] == max(before.values()) or (
                closed.address == address and before[address] == limits.per_address
            )
            opened.remove(closed)
        opened.append(Opened(address, time))

        counts = Counter(one.address for one in opened)
        assert len(opened) <= limits.total
        assert max(counts.values()) <= limits.per_address


def test_a_busy_connection_is_replaced_after_the_idle_ones_of_its_client() -> None:
    busy, idle = Opened("a", 1e12), Opened("a", 7)

    assert connection_to_replace([busy, idle], "b", ConnectionLimits(2, 2)) == idle
    assert connection_to_replace([busy], "b", ConnectionLimits(1, 1)) == busy
