import pytest

from holdfast.apps.hyperpod.local import LocalHyperPodCluster
from holdfast.model.jobs import JobPhase
from holdfast.model.names import PodPhase


@pytest.mark.parametrize(
    ("phase", "attempt", "state", "pod"),
    [
        (JobPhase.WAITING, 0, "Created", PodPhase.PENDING),
        (JobPhase.WAITING, 1, "Restarting", PodPhase.RUNNING),
        (JobPhase.STARTING, 1, "Created", PodPhase.PENDING),
        (JobPhase.STARTING, 2, "Restarting", PodPhase.RUNNING),
        (JobPhase.RUNNING, 2, PodPhase.RUNNING, PodPhase.RUNNING),
        (JobPhase.STOPPING, 1, "Restarting", PodPhase.RUNNING),
        (JobPhase.SUCCEEDED, 1, PodPhase.SUCCEEDED, PodPhase.SUCCEEDED),
        (JobPhase.FAILED, 1, PodPhase.FAILED, PodPhase.FAILED),
        (JobPhase.CANCELLED, 1, PodPhase.FAILED, PodPhase.FAILED),
    ],
)
def test_a_run_is_in_a_state_of_the_training_operator(runs, phase, attempt, state, pod) -> None:
    runs.add("train", phase=phase, attempt=attempt)
    cluster = LocalHyperPodCluster(runs.home)

    [job] = cluster.jobs("", everywhere=True)

    assert job["State"] == state
    assert {one["Status"] for one in cluster.pods("train")} == {pod}


def test_a_run_whose_holdfast_was_killed_has_failed(runs) -> None:
    runs.add("train", is_active=False)

    assert LocalHyperPodCluster(runs.home).jobs("", everywhere=True)[0]["State"] == PodPhase.FAILED


def test_runs_have_no_labels_to_choose_by(runs) -> None:
    runs.add("train")

    assert LocalHyperPodCluster(runs.home).jobs("a=b", everywhere=True) == []
