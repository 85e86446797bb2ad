"""How often a hang is inspected, on every platform."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.inspection_tries import (
    LIMIT,
    TRIES,
    deadline_of,
    is_repeated,
    limit_of,
)


@given(names=st.booleans(), unread=st.booleans(), tries=st.integers(1, 9), restarts=st.booleans())
def test_only_a_reported_hang_whose_cause_may_be_unread_is_inspected_again(
    names, unread, tries, restarts
) -> None:
    again = is_repeated(names_rank=names, is_incomplete=unread, tries=tries, restarts=restarts)

    assert again == (unread and not names and not restarts and tries in (1, 2))


def test_each_inspection_has_twice_the_time_and_all_of_them_end() -> None:
    limits = [limit_of(tries) for tries in range(1, TRIES + 1)]

    assert limits == [LIMIT, 2 * LIMIT, 4 * LIMIT]
    assert deadline_of(restarts=True) == timedelta(seconds=10)
    assert deadline_of(restarts=False) == timedelta(seconds=70)
