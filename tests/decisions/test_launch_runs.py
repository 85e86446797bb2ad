"""Which launchers are of one run."""

import pytest

from holdfast.decisions.launch_runs import RunName


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (RunName(), RunName(), True),
        (RunName(run_id="a"), RunName(run_id="b"), False),
        (RunName(run_id="a"), RunName(), False),
        (RunName(step="7.0"), RunName(step="7.0"), True),
        (RunName(step="7.0"), RunName(step="7.1"), False),
        (RunName(step="7.0"), RunName(), True),  # replaces a launcher that was lost with its node
        (RunName(run_id="a", step="7.0"), RunName(step="7.0"), False),
    ],
)
def test_launchers_are_of_one_run_by_its_id_and_its_slurm_step(
    one: RunName, other: RunName, *, is_same: bool
) -> None:
    assert one.is_of(other) is is_same
    assert other.is_of(one) is is_same


def test_a_run_is_named_by_what_the_user_can_choose() -> None:
    assert str(RunName()) == "the job with --rdzv-id 'none'"
    assert str(RunName(run_id="a", step="7.1")) == "the job with --rdzv-id 'a' in Slurm step 7.1"
