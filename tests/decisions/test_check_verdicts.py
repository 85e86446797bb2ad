"""Which faults of a check remain after a later one."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.check_verdicts import verdict_after
from holdfast.model.health import Fault
from holdfast.model.names import Reason
from tests.ports.builders import a_fault

COUNTS = (Reason.GPU_COUNT, Reason.EFA_COUNT, Reason.NEURON_COUNT)

reasons = st.sampled_from([*COUNTS, Reason.CHECK_FAILED, Reason.XID_REPLACE])
faults = st.builds(
    lambda reason, family: a_fault(reason=reason, family=family),
    reasons,
    st.sampled_from(["check", "nvidia-smi"]),
)
some = st.lists(faults, unique_by=lambda fault: fault.key, max_size=6).map(tuple)
present = st.frozensets(reasons)
families = st.none() | st.just(("check",))


@given(some, some, present, families)
def test_a_fault_ends_exactly_if_it_is_a_count_that_was_read_again(
    before: tuple[Fault, ...], found: tuple[Fault, ...], present, families
) -> None:
    after = verdict_after(before, found, present, families=families)

    keys = {fault.key for fault in after}
    assert {fault.key for fault in found} <= keys
    assert len(keys) == len(after)
    for fault in before:
        is_covered = families is None or fault.family in families
        ends = fault.reason in COUNTS and fault.reason in present and is_covered
        is_found = fault.key in {one.key for one in found}
        assert (fault in after) is (is_found or not ends)


@given(some, some, present, families)
def test_the_same_check_again_changes_nothing(before, found, present, families) -> None:
    after = verdict_after(before, found, present, families=families)

    assert verdict_after(after, found, present, families=families) == after
