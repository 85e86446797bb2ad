"""What is made of a job object and its pods."""

from dataclasses import replace
from datetime import timedelta

import pytest
from job_objects import (
    BEGAN,
    LABELS,
    a_pod,
    a_record,
    a_state,
    at,
    container,
    disrupted,
    ended,
    requests,
)

from holdfast.adapters.kubernetes.jobs.objects import QUEUE
from holdfast.adapters.kubernetes.jobs.pods import AttemptPods, FinalPodStates
from holdfast.adapters.kubernetes.jobs.views import LATE, job_view, nodes_of, record_of
from holdfast.model.job_views import RankView
from holdfast.model.jobs import JobPhase, Placing
from holdfast.model.names import APP_MAX_RETRY_COUNT, JOB_RECORD, JOB_STATUS, KEEP_PODS, RECORD_OF

SEEN = BEGAN + timedelta(seconds=30)
SUSPENDED_PHASES = [JobPhase.STOPPING, JobPhase.WAITING]
GOING = [JobPhase.STARTING, JobPhase.RUNNING]
STOPPED = {"suspend": True, "conditions": ("Suspended",)}


def record_now(state, seen_at=SEEN):
    return record_of(state, requests(state), seen_at)


def view(state, pods, *, lost=None, watched=lambda node: True, **more):
    record = record_now(state)
    counts = {node: watched(node) for node in nodes_of(record, pods, lost or {})}
    return job_view(state, requests(state), record, pods, lost=lost or {}, counts=counts, **more)


# whose attempt it is


def test_a_job_that_others_have_begun_is_in_its_first_attempt() -> None:
    record = record_now(a_state())

    assert record is not None
    assert (record.phase, record.attempt) == (JobPhase.STARTING, 1)
    assert record.started_at == record.phase_since == BEGAN


def test_a_run_that_began_by_a_clock_ahead_of_ours_is_one_attempt() -> None:
    """The job's controller dates the begin; Holdfast confirms it before that time."""
    begun = record_now(a_state())
    confirmed = replace(begun, phase=JobPhase.RUNNING, phase_since=BEGAN - timedelta(seconds=5))

    assert record_now(a_state(record=confirmed)) == confirmed
    again = record_now(a_state(record=confirmed, started=1))
    assert (again.phase, again.attempt) == (JobPhase.STARTING, 2)


def test_an_exit_that_is_dated_by_a_clock_behind_ours_counts() -> None:
    exit_ = container(lastState=ended(1, -20))
    new, old = (a_pod(status=exit_, creationTimestamp=at(second)) for second in (2, -60))

    def exit_code(pod):
        return view(a_state(record=a_record()), [pod]).ranks[0].exit_code

    assert exit_code(new) == 1
    assert exit_code(old) is None


def test_of_a_job_that_was_there_before_us_only_what_happened_lately_counts() -> None:
    record = record_now(a_state(), seen_at=BEGAN + timedelta(hours=1))

    assert record is not None
    assert record.started_at == BEGAN + timedelta(hours=1) - LATE


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {LABELS.enable_job_auto_resume: None}},
        {"annotations": {LABELS.enable_job_auto_resume: "false"}},
        {"annotations": {LABELS.enable_job_auto_resume: "yes"}},
        {"annotations": {JOB_RECORD: "{"}},
        {"deletionTimestamp": at(9)},
        {"suspend": True},
        {"conditions": ("Succeeded",)},
        {"conditions": ("Failed",)},
        {"record": a_record(JobPhase.FAILED)},
        {"record": a_record(JobPhase.RUNNING), **STOPPED},
        {"record": a_record(JobPhase.STARTING), **STOPPED},
        {"record": a_record(JobPhase.RUNNING), "conditions": ("Suspended",)},
    ],
    ids=str,
)
def test_a_job_is_left_alone(changes) -> None:
    assert record_now(a_state(**changes)) is None


@pytest.mark.parametrize("phase", SUSPENDED_PHASES)
def test_a_job_that_we_hold_goes_on_from_its_record(phase) -> None:
    record = a_record(phase)

    assert record_now(a_state(record=record, **STOPPED)) == record


@pytest.mark.parametrize("phase", GOING)
def test_an_attempt_that_we_have_begun_goes_on_from_its_record(phase) -> None:
    record = a_record(phase)

    assert record_now(a_state(record=record)) == record


@pytest.mark.parametrize(
    ("record", "started"),
    [*((a_record(phase), 0) for phase in SUSPENDED_PHASES), (a_record(JobPhase.RUNNING), 11)],
)
def test_a_job_that_somebody_starts_anew_is_in_another_attempt_that_costs_nothing(
    record, started
) -> None:
    found = record_now(a_state(record=record, started=started))

    assert found is not None
    assert (found.phase, found.attempt) == (JobPhase.STARTING, 2)
    assert found.hardware_retries == record.hardware_retries


def test_a_run_that_began_with_the_record_of_it_is_the_same() -> None:
    record = a_record(JobPhase.RUNNING, since=10)

    assert record_now(a_state(record=record, started=10)) == record


@pytest.mark.parametrize("phase", list(JobPhase))
def test_a_copy_of_a_job_is_another_that_begins_anew(phase) -> None:
    reported = {RECORD_OF: "uid-of-the-first", JOB_STATUS: "attempt 4 failed"}
    record = a_record(phase, attempt=4, hardware_retries=1)
    copy = a_state(record=record, annotations=reported)

    assert (copy.record, copy.status) == (None, None)
    assert record_now(copy) == record_now(a_state())
    assert record_now(a_state(record=record, annotations=reported, **STOPPED)) is None
    own = a_state(record=record, annotations={**reported, RECORD_OF: "job-uid"})
    assert requests(own).record == record


def test_a_job_that_we_keep_down_and_whose_record_is_taken_away_is_started_anew() -> None:
    marked = {RECORD_OF: "job-uid"}
    found = record_now(a_state(annotations=marked, **STOPPED))

    assert found is not None
    assert (found.phase, found.attempt, found.phase_since) == (JobPhase.WAITING, 0, SEEN)
    assert record_now(a_state(annotations=marked)) == record_now(a_state())
    over = a_state(annotations=marked, suspend=True, conditions=("Suspended", "Failed"))
    assert record_now(over) is None
    assert record_now(a_state(annotations=marked, labels={QUEUE: "team"}, **STOPPED)) is None


@pytest.mark.parametrize("phase", [*SUSPENDED_PHASES, *GOING])
def test_a_job_that_is_over_is_reported_to_the_core_once_it_has_a_record(phase) -> None:
    state = a_state(record=a_record(phase), conditions=("Failed",))

    found = view(state, [])

    assert found.ending is not None
    assert (found.ending.outcome, found.ending.reason) == (JobPhase.FAILED, "it is Failed")


@pytest.mark.parametrize(
    ("record", "suspend", "is_active", "goes_on"),
    [
        (a_record(JobPhase.STOPPING), False, True, True),
        (a_record(JobPhase.STOPPING), True, False, True),
        (a_record(JobPhase.WAITING), True, False, True),
        (a_record(JobPhase.WAITING), True, True, False),
        (a_record(JobPhase.STARTING), True, True, True),
        (a_record(JobPhase.RUNNING), True, True, False),
    ],
)
def test_a_job_in_a_queue_is_held_by_its_workload(record, suspend, is_active, goes_on) -> None:
    state = a_state(record=record, suspend=suspend, labels={QUEUE: "team"})

    found = record_of(state, requests(state), SEEN, is_active=is_active)

    assert found == (record if goes_on else None)


def test_a_job_in_a_queue_that_is_let_in_against_our_word_was_started_by_others() -> None:
    state = a_state(record=a_record(JobPhase.WAITING), labels={QUEUE: "team"})

    found = record_of(state, requests(state), SEEN, is_active=True)

    assert found is not None
    assert (found.phase, found.attempt) == (JobPhase.STARTING, 2)


# ranks


def test_ranks_are_those_pods_that_have_started() -> None:
    pods = [a_pod(1, node="b"), a_pod(0, phase="Pending"), a_pod(2, node="", phase="Pending")]

    found = view(a_state(workers=2), pods)

    assert found.ranks == (RankView(rank=1, node="b"),)
    assert found.record.placement == ("a", "b")
    assert (found.spec.nodes, found.spec.placing) == (3, Placing.SCHEDULER)
    assert found.spec.name == "pytorchjob/default/llama"


def test_only_nodes_that_somebody_vouches_for_are_in_the_placement() -> None:
    found = view(a_state(), [a_pod(0), a_pod(1, node="b")], watched=lambda node: node == "b")

    assert found.record.placement == ("b",)


def test_a_rank_that_was_placed_on_a_node_that_is_gone_is_not_forgotten() -> None:
    state = a_state(record=a_record(placement=("gone", "b")))

    assert view(state, [a_pod(1, node="b")]).record.placement == ("gone", "b")


@pytest.mark.parametrize(
    ("pod", "code", "reason"),
    [
        (a_pod(phase="Failed", status=container(state=ended(3))), 3, ""),
        (a_pod(phase="Failed", status=container(state=ended(137))), -9, ""),
        (a_pod(status=container(lastState=ended(1))), 1, ""),
        (a_pod(status=container(lastState=ended(137, 20, "OOMKilled"))), -9, "OOMKilled"),
        (a_pod(phase="Failed", status={"reason": "Evicted"}), 1, "Evicted"),
        (a_pod(phase="Succeeded", status=container(state=ended(0))), 0, ""),
    ],
)
def test_the_end_of_a_container_is_that_of_its_rank(pod, code, reason) -> None:
    (rank,) = view(a_state(workers=0), [pod]).ranks

    assert (rank.exit_code, rank.reason, rank.is_evicted) == (code, reason, False)


def test_an_end_before_the_attempt_is_not_of_it() -> None:
    old = a_pod(status=container(lastState=ended(1, -1)), creationTimestamp=at(-60))
    same_second = a_pod(status=container(lastState=ended(1, 0)))
    state = a_state(workers=0, record=a_record(started_at=BEGAN + timedelta(milliseconds=300)))

    assert view(state, [old]).ranks[0].exit_code is None
    assert view(state, [same_second]).ranks[0].exit_code == 1


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (a_pod(deletionTimestamp=at(20)), "Deleted"),
        (a_pod(status=disrupted("PreemptionByScheduler")), "PreemptionByScheduler"),
        (
            a_pod(
                phase="Failed",
                status={**disrupted("EvictionByEvictionAPI"), **container(state=ended(143))},
            ),
            "",
        ),
    ],
)
def test_a_pod_that_has_to_leave_was_evicted(pod, reason) -> None:
    (rank,) = view(a_state(workers=0), [pod]).ranks

    assert rank.is_evicted
    assert rank.exit_code is not None
    assert rank.reason == reason


def test_a_pod_that_its_kubelet_ends_for_want_of_something_has_failed() -> None:
    status = {**disrupted("TerminationByKubelet"), "reason": "Evicted"}

    (rank,) = view(a_state(workers=0), [a_pod(phase="Failed", status=status)]).ranks

    assert not rank.is_evicted
    assert rank.exit_code == 1


def test_while_it_is_held_every_pod_that_is_there_counts() -> None:
    state = a_state(record=a_record(JobPhase.STOPPING), **STOPPED)
    done = a_pod(1, node="b", phase="Succeeded")

    found = view(state, [a_pod(0), done], fenced=[done])

    assert found.ranks == (
        RankView(rank=0, node="a"),
        RankView(rank=1, node="b", is_fenced=True),
    )
    assert found.is_stop_seen
    assert not view(replace(state, is_stop_seen=False), []).is_stop_seen


# pods that are gone


def lost(attempts, *pods, number=1):
    return attempts.lost("job-uid", number, pods)


def test_a_pod_that_was_made_anew_is_a_rank_that_was_lost() -> None:
    attempts = AttemptPods(FinalPodStates())
    assert lost(attempts, a_pod(0), a_pod(1)) == {}

    again = a_pod(1, uid="another", phase="Pending", node="")
    gone = lost(attempts, a_pod(0), again)
    assert list(gone) == [1]
    found = view(a_state(), [a_pod(0), again], lost=gone)
    assert [rank.exit_code for rank in found.ranks] == [None, 1]
    assert found.ranks[1].is_evicted

    assert lost(attempts, a_pod(0), again, number=2) == {}
    attempts.forget("job-uid")
    assert lost(attempts, a_pod(0), again) == {}


def test_a_pod_that_runs_in_place_of_another_does_not_hide_that_it_was_lost() -> None:
    attempts = AttemptPods(FinalPodStates())
    lost(attempts, a_pod(0), a_pod(1))

    again = a_pod(1, uid="another")
    for _ in range(2):
        gone = lost(attempts, a_pod(0), again)
        assert {rank: pod.uid for rank, pod in gone.items()} == {1: "pod-1"}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("keeps", "created", "code"), [(False, 1, 3), (False, -1, 0), (True, 1, 0)]
)
def test_a_pod_in_place_of_a_failed_one_does_not_hide_that_it_failed_in_this_attempt(
    order: int, keeps: bool, created: int, code: int
) -> None:
    more = {"uid": "failed", "creationTimestamp": at(created)}
    failed = a_pod(1, phase="Failed", status=container(state=ended(3)), **more)
    other = a_pod(1, uid="in-its-place", creationTimestamp=at(25))
    kept = {"annotations": {KEEP_PODS: "true"}} if keeps else {}
    state = a_state(record=a_record(JobPhase.RUNNING), **kept)

    seen = view(state, [a_pod(0), *[failed, other][:: order if code else 1]])

    assert [rank.exit_code or 0 for rank in seen.ranks] == [0, code]


def test_the_last_words_that_are_kept_are_the_newest() -> None:
    words = FinalPodStates()
    for number in range(5000):
        words.note(a_pod(0, uid=f"pod-{number}", phase="Failed"))

    known = [a_pod(0, uid=f"pod-{number}") for number in (0, 4999)]
    assert [words.of(pod).has_ended for pod in known] == [False, True]


def test_a_pod_that_has_never_run_is_not_missed() -> None:
    attempts = AttemptPods(FinalPodStates())
    lost(attempts, a_pod(1, phase="Pending", node=""))

    assert lost(attempts, a_pod(1, uid="another")) == {}


def test_how_a_pod_ended_is_known_though_it_was_deleted_at_once() -> None:
    words = FinalPodStates()
    attempts = AttemptPods(words)
    lost(attempts, a_pod(0))
    words.note(a_pod(0, phase="Failed", status=container(state=ended(7))))

    found = view(a_state(workers=0), [], lost=lost(attempts))

    (rank,) = found.ranks
    assert (rank.exit_code, rank.is_evicted) == (7, False)


def test_how_a_pod_ended_that_its_stop_deleted_explains_the_failure() -> None:
    states = FinalPodStates()
    attempts = AttemptPods(states)
    lost(attempts, a_pod(0), a_pod(1, node="b"), a_pod(2, node="c"))
    deleted = a_pod(1, node="b", phase="Failed", status=container(state=ended(143)))
    states.note(replace(deleted, evicted="Deleted"))
    stopping = a_state(record=a_record(JobPhase.STOPPING), **STOPPED)
    remaining = [a_pod(0)]

    found = view(stopping, remaining, lost=lost(attempts, *remaining))

    assert [(one.rank, one.exit_code, one.is_evicted) for one in found.ranks] == [
        (0, None, False),
        (1, -15, False),
    ]


# what people ask for


@pytest.mark.parametrize(
    ("text", "is_on"), [("true", True), (" True ", True), ("false", False), ("FALSE", False)]
)
def test_the_switch_is_read_as_people_write_it(text, is_on) -> None:
    found = requests(a_state(annotations={LABELS.enable_job_auto_resume: text}))

    assert (found.auto_resume, found.rejected) == (is_on, ())


@pytest.mark.parametrize("text", ["", "yes", "1", "true,", "tru"])
def test_a_switch_that_cannot_be_read_is_off_and_rejected(text) -> None:
    found = requests(a_state(annotations={LABELS.enable_job_auto_resume: text}))

    assert not found.auto_resume
    assert [one.key for one in found.rejected] == [LABELS.enable_job_auto_resume]


@pytest.mark.parametrize("text", ["", "-1", "1001", "1000000000", "2.0", "two", "²", "9" * 5000])
@pytest.mark.parametrize("key", [LABELS.job_max_retry_count, APP_MAX_RETRY_COUNT])
def test_a_count_that_cannot_be_meant_is_rejected_and_the_default_holds(key, text) -> None:
    found = requests(a_state(annotations={key: text}))

    assert found.auto_resume
    assert (found.max_retries, found.max_app_retries) == (1, 3)
    (rejected,) = found.rejected
    assert rejected.key == key
    assert len(rejected.value) < 200


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("2", 2), (" 1000 ", 1000)])
def test_counts_are_read(text, count) -> None:
    keys = (LABELS.job_max_retry_count, APP_MAX_RETRY_COUNT)
    found = requests(a_state(annotations=dict.fromkeys(keys, text)))

    assert (found.max_retries, found.max_app_retries) == (count, count)
    assert found.rejected == ()


@pytest.mark.parametrize(
    ("code", "seconds", "is_evicted"),
    [
        (1, 19, False),
        (1, 20, False),
        (143, 19, False),
        (143, 20, True),
        (137, 20, True),
        (1, 21, True),
    ],
)
def test_what_came_first_decides_between_a_failure_and_a_deletion(
    code, seconds, is_evicted
) -> None:
    deleted = {"deletionTimestamp": at(50), "deletionGracePeriodSeconds": 30}
    pod = a_pod(phase="Failed", status=container(state=ended(code, seconds)), **deleted)

    (rank,) = view(a_state(workers=0), [pod]).ranks

    assert rank.is_evicted == is_evicted


def test_a_job_that_its_operator_is_about_to_start_anew_is_left_alone_until_then() -> None:
    going = replace(a_state(record=a_record()), is_restarting=True)
    held = replace(a_state(record=a_record(JobPhase.STOPPING), **STOPPED), is_restarting=True)

    assert record_now(going) is None
    assert record_now(held) == a_record(JobPhase.STOPPING)


# ranks that have ended well


def done(rank: int, node: str = "") -> RankView:
    return RankView(rank=rank, node=node, exit_code=0)


def test_a_rank_that_has_ended_well_is_not_lost_when_its_pod_is_gone() -> None:
    state = a_state(record=a_record(placement=("a", "b")))
    gone = a_pod(0, node="a", phase="Succeeded")

    found = view(state, [a_pod(1, node="b")], lost={0: gone})

    assert found.ranks == (done(0, "a"), RankView(rank=1, node="b"))


@pytest.mark.parametrize(
    ("assigned", "without", "placement"),
    [
        ((), None, ("a", "b")),
        (("b",), None, ("a", "b")),
        (("b", "a"), None, ("a", "b")),
        (("a", "b"), 0, ("a", "b")),
        (("a", "c"), None, ("a", "b", "c")),
    ],
    ids=["new", "one before the other", "in disorder", "rank without a pod", "rank elsewhere"],
)
def test_a_placement_is_in_rank_order(assigned, without, placement) -> None:
    state = a_state(record=a_record(placement=assigned))
    pods = [a_pod(rank, node=node) for rank, node in ((1, "b"), (0, "a"))]

    found = view(state, [pod for pod in pods if pod.member.rank != without])

    assert found.record.placement == placement


@pytest.mark.parametrize(
    ("others", "placement"),
    [
        ([a_pod(1, node="b")], ("b",)),
        ([a_pod(1, node="a")], ("a",)),
        ([a_pod(1, node="a", phase="Pending")], ("a",)),
        ([a_pod(1, node="a", phase="Succeeded")], ()),
    ],
    ids=["elsewhere", "on the same node", "about to run there", "ended as well"],
)
def test_a_node_on_which_all_ranks_have_ended_well_is_not_needed_any_more(
    others, placement
) -> None:
    state = a_state(record=a_record(placement=("a",)))

    found = view(state, [a_pod(0, node="a", phase="Succeeded"), *others])

    assert found.record.placement == placement


def test_a_rank_that_its_operator_counts_as_ended_needs_no_pod() -> None:
    state = replace(a_state(record=a_record(), workers=2), completed=frozenset((0, 2)))

    found = view(state, [a_pod(1, node="b"), a_pod(2, node="c", uid="again")])

    assert found.ranks == (done(0), RankView(rank=1, node="b"), done(2, "c"))
    assert found.spec.nodes == 3


def test_a_job_that_waits_needs_no_room_for_ranks_that_have_ended() -> None:
    stopped = a_state(record=a_record(JobPhase.WAITING), workers=2, **STOPPED)

    assert view(stopped, []).spec.nodes == 3
    assert view(replace(stopped, completed=frozenset((0,))), []).spec.nodes == 2
