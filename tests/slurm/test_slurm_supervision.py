from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.adapters.slurm.jobs.attempts import attempt_in, attempt_number, restarts_in
from holdfast.adapters.slurm.jobs.comment import Mode
from holdfast.adapters.slurm.jobs.own_job import parse_steps
from holdfast.adapters.slurm.jobs.supervision import (
    Limits,
    Move,
    Situation,
    Verdict,
    faults_behind,
    faults_under,
    is_bound,
    is_good,
    next_move,
    relaunched,
)
from holdfast.adapters.slurm.nodes.text import NodeFacts, parse_nodes

NAMES = ("node1", "node2", "node3", "node4")
LIMITS = Limits(
    grace=timedelta(seconds=10),
    fence=timedelta(seconds=50),
    swap=timedelta(seconds=100),
    requeue=timedelta(seconds=5),
)
LOST = "Action:Replace holdfast: NvidiaGpuXidErrorPendingReplacement"


def node(name: str, state: str = "MIXED", reason: str = "", boot: str = "b1", start: str = "s1"):
    said = f" Reason={reason} [root@2026-01-01T00:00:00]" if reason else ""
    text = f"NodeName={name} State={state} BootTime={boot} SlurmdStartTime={start}{said}\n"
    return parse_nodes(text)[name]


STATES = ["MIXED", "ALLOCATED", "IDLE", "MIXED+FAIL", "DOWN", "DOWN+NOT_RESPONDING",
          "MIXED+NOT_RESPONDING", "IDLE+INVALID_REG", "MIXED+DRAIN",
          "IDLE+POWER_DOWN"]  # fmt: skip

some_names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)


@st.composite
def situations(draw) -> Situation:
    step_nodes = draw(some_names)
    nodes = {name: node(name, draw(st.sampled_from(STATES))) for name in NAMES}
    return Situation(
        mode=draw(st.sampled_from(Mode)),
        step_nodes=step_nodes,
        allocation=draw(some_names),
        nodes={name: nodes[name] for name in draw(some_names)},
        faults=dict.fromkeys(draw(st.lists(st.sampled_from(step_nodes))), "broken"),
        since=timedelta(
            seconds=draw(
                st.sampled_from([0.0, 9.999999, 10.0, 49.999999, 50.0, 99.999999, 100.0, 1e6])
            )
        ),
        relaunches=draw(st.integers(0, 4)),
        max_retry=draw(st.integers(0, 4)),
        stalled=draw(st.integers(0, 4)),
        batch_host=draw(st.sampled_from(["", *NAMES])),
        is_bound=draw(st.booleans()),
        cannot_resize=draw(st.sampled_from(["", "it has GRES"])),
    )


@given(situations())
def test_without_a_fault_a_step_that_ended_has_ended(now: Situation) -> None:
    if not now.faults:
        expected = Verdict.WAIT if now.since < LIMITS.grace else Verdict.END
        assert next_move(now, LIMITS).verdict is expected


@given(situations())
def test_a_relaunch_is_on_as_many_good_nodes_of_the_allocation_each_once(now: Situation) -> None:
    move = next_move(now, LIMITS)

    if move.verdict is Verdict.RELAUNCH:
        assert len(set(move.nodes)) == len(move.nodes) == len(now.step_nodes)
        assert set(move.nodes) <= set(now.allocation)
        assert all(is_good(now.nodes[name]) for name in move.nodes)
        assert now.mode is not Mode.REQUEUE
        assert now.batch_host not in now.faults
    elif move.verdict is not Verdict.RESIZE:
        assert move.nodes == ()


@given(situations())
def test_nodes_are_exchanged_once_for_a_step_that_may_run_elsewhere(now: Situation) -> None:
    move = next_move(now, LIMITS)

    if move.verdict is Verdict.RESIZE:
        assert now.mode is Mode.RESIZE
        assert not now.is_bound
        assert not now.cannot_resize
        assert move.lacks > 0
        assert len(move.nodes) + move.lacks == len(now.step_nodes)
        assert set(move.nodes) <= set(now.allocation)
        assert all(is_good(now.nodes[name]) for name in move.nodes)
        assert now.batch_host not in now.faults


@given(situations())
def test_a_step_that_swaps_or_names_its_nodes_stays_on_them(now: Situation) -> None:
    move = next_move(now, LIMITS)

    if move.verdict is Verdict.RELAUNCH and (now.mode is Mode.SWAP or now.is_bound):
        assert move.nodes == now.step_nodes


@given(situations())
def test_nothing_is_waited_for_for_ever(now: Situation) -> None:
    if now.since >= max(LIMITS.grace, LIMITS.swap, LIMITS.fence):
        assert next_move(now, LIMITS).verdict is not Verdict.WAIT


@given(situations())
def test_neither_used_retries_nor_standing_still_is_resumed(now: Situation) -> None:
    if now.relaunches >= now.max_retry or now.stalled >= now.stall_limit:
        assert next_move(now, LIMITS).verdict in (Verdict.END, Verdict.WAIT)
        if now.faults:
            assert next_move(now, LIMITS).verdict is Verdict.END


@given(situations())
def test_what_is_not_relaunched_after_a_fault_is_requeued_at_last(now: Situation) -> None:
    move = next_move(now, LIMITS)

    if now.faults and now.since >= LIMITS.swap and move.verdict is not Verdict.END:
        assert move.verdict in (Verdict.RELAUNCH, Verdict.RESIZE, Verdict.REQUEUE)


@given(situations())
def test_nothing_runs_anew_while_a_rank_may_run_on(now: Situation) -> None:
    known = (now.nodes[name] for name in now.faults if name in now.nodes)
    may = any("NOT_RESPONDING" in one.state for one in known)

    if may and now.since < LIMITS.fence:
        assert next_move(now, LIMITS).verdict not in (Verdict.RELAUNCH, Verdict.RESIZE)


def at(mode: Mode, *, bad: str = "node2", state: str = "MIXED+FAIL", **changes) -> Move:
    nodes = {name: node(name) for name in ("node1", "node2", "node3")} | {bad: node(bad, state)}
    values = {
        "mode": mode, "step_nodes": ("node1", "node2"), "allocation": tuple(nodes), "nodes": nodes,
        "faults": {bad: state}, "since": timedelta(), "relaunches": 0, "max_retry": 1,
        **changes,
    }  # fmt: skip
    return next_move(Situation(**values), LIMITS)


def test_each_mode_falls_back_to_the_next() -> None:
    two = {"allocation": ("node1", "node2")}
    late = {"since": LIMITS.swap}

    assert at(Mode.STEP).nodes == ("node1", "node3")
    assert at(Mode.STEP, **two).verdict is Verdict.WAIT
    assert at(Mode.STEP, state="MIXED", **two).nodes == ("node1", "node2")
    assert at(Mode.STEP, **two, **late).verdict is Verdict.REQUEUE
    assert at(Mode.SWAP).verdict is Verdict.WAIT
    assert at(Mode.SWAP, state="MIXED").nodes == ("node1", "node2")
    assert at(Mode.SWAP, **late).verdict is Verdict.REQUEUE
    assert at(Mode.SWAP, allocation=("node1", "node3")).verdict is Verdict.REQUEUE
    assert at(Mode.REQUEUE).verdict is Verdict.REQUEUE


def test_a_job_exchanges_nodes_only_where_it_has_too_few_good_ones() -> None:
    two = {"allocation": ("node1", "node2")}

    assert at(Mode.RESIZE).nodes == ("node1", "node3")
    move = at(Mode.RESIZE, **two)
    assert (move.verdict, move.nodes, move.lacks) == (Verdict.RESIZE, ("node1",), 1)
    assert at(Mode.RESIZE, allocation=("node1",)).verdict is Verdict.RESIZE
    assert at(Mode.RESIZE, batch_host="node2", **two).verdict is Verdict.REQUEUE
    assert at(Mode.RESIZE, is_bound=True).verdict is Verdict.WAIT
    refused = at(Mode.RESIZE, cannot_resize="it has GRES", **two)
    assert (refused.verdict, refused.why) == (Verdict.REQUEUE, "it has GRES")


def test_a_step_that_names_its_nodes_waits_for_them() -> None:
    assert at(Mode.STEP, is_bound=True).verdict is Verdict.WAIT


def test_no_step_is_launched_where_nobody_answers() -> None:
    two = {"allocation": ("node1", "node2")}
    move = at(Mode.STEP, state="MIXED+NOT_RESPONDING", since=LIMITS.fence, **two)

    assert move.verdict is Verdict.WAIT


def test_a_fault_where_the_script_runs_leaves_nothing_but_a_requeue() -> None:
    assert at(Mode.STEP, batch_host="node2").verdict is Verdict.REQUEUE
    assert at(Mode.STEP, batch_host="node1").verdict is Verdict.RELAUNCH


def test_a_node_that_answers_or_is_off_keeps_nothing_waiting() -> None:
    early, late = timedelta(), LIMITS.fence

    for silent in ("DOWN+NOT_RESPONDING", "MIXED+NOT_RESPONDING"):
        assert at(Mode.STEP, state=silent, since=early).verdict is Verdict.WAIT
        assert at(Mode.STEP, state=silent, since=late).verdict is Verdict.RELAUNCH
        assert at(Mode.REQUEUE, state=silent, since=early).verdict is Verdict.REQUEUE
    for ended in ("DOWN", "MIXED+FAIL", "IDLE+POWERED_DOWN+NOT_RESPONDING"):
        assert at(Mode.STEP, state=ended, since=early).verdict is Verdict.RELAUNCH


def test_the_last_retry_is_made_and_no_further() -> None:
    assert at(Mode.STEP, relaunches=0, max_retry=1).verdict is Verdict.RELAUNCH
    assert at(Mode.STEP, relaunches=1, max_retry=1).verdict is Verdict.END
    assert at(Mode.STEP, stalled=2).verdict is Verdict.RELAUNCH
    assert at(Mode.STEP, stalled=3).verdict is Verdict.END


BEFORE = dict.fromkeys(NAMES, "b1/s1")


@pytest.mark.parametrize(
    ("state", "reason", "boot", "start", "behind", "under"),
    [
        ("MIXED", "", "b1", "s1", False, False),
        ("MIXED+DRAIN", "maintenance", "b1", "s1", False, False),
        ("MIXED+FAIL", "maintenance", "b1", "s1", True, False),
        ("MIXED+FAIL", "Action:Replace", "b1", "s1", True, False),
        ("MIXED+FAIL", LOST, "b1", "s1", True, True),
        ("MIXED+FAIL", f"{LOST} : Not responding", "b1", "s1", True, True),
        ("MIXED+FAIL", f"{LOST} (deferred)", "b1", "s1", True, False),
        ("MIXED+FAIL", "holdfast: checking", "b1", "s1", True, False),
        ("MIXED+NOT_RESPONDING", "", "b1", "s1", True, False),
        ("DOWN", "", "b1", "s1", True, True),
        ("IDLE+INVALID_REG", "", "b1", "s1", True, False),
        ("MIXED", "", "b2", "s2", True, True),
        ("MIXED", "", "b1", "s2", True, False),
        ("MIXED", "", "None", "None", False, False),
    ],
)
def test_what_explains_an_end_and_what_ends_a_step_that_runs(
    state: str, reason: str, boot: str, start: str, behind: bool, under: bool
) -> None:
    nodes = {"node1": node("node1", state, reason, boot, start), "node2": node("node2", "DOWN")}

    assert bool(faults_behind(["node1"], nodes, BEFORE)) is behind
    assert bool(faults_under(["node1"], nodes, BEFORE)) is under


def test_a_node_that_was_never_seen_before_has_not_rebooted() -> None:
    nodes = {"node1": node("node1", boot="b2", start="s2")}

    assert faults_behind(["node1"], nodes, {}) == {}


def test_a_node_that_slurm_has_forgotten_is_a_fault() -> None:
    assert faults_behind(["node1"], {}, BEFORE) == {"node1": "unknown to Slurm"}
    assert faults_under(["node1"], {}, BEFORE) == {}


states = st.builds(
    node, st.just("node1"), st.sampled_from(STATES), st.sampled_from(["", LOST, "mine"]),
    st.sampled_from(["b1", "b2", "None"]), st.sampled_from(["s1", "s2", "None"]),
)  # fmt: skip


@given(states)
def test_what_ends_a_step_explains_its_end(one: NodeFacts) -> None:
    under = faults_under(["node1"], {"node1": one}, BEFORE)

    assert under.items() <= faults_behind(["node1"], {"node1": one}, BEFORE).items()


@given(st.tuples(st.integers(0, 50), st.integers(0, 2000)),
       st.tuples(st.integers(0, 50), st.integers(0, 2000)))  # fmt: skip
@example((0, 1000), (1, 0))
def test_a_later_attempt_never_has_a_smaller_number(one, other) -> None:
    earlier, later = sorted((one, other))

    assert attempt_number(*earlier) <= attempt_number(*later)
    assert (earlier[0] == later[0]) or attempt_number(*earlier) < attempt_number(*later)


def test_the_first_attempt_is_0_and_each_relaunch_one_more() -> None:
    assert [attempt_number(0, 0), attempt_number(0, 1), attempt_number(2, 3)] == [0, 1, 2003]


@pytest.mark.parametrize(
    ("environment", "restarts", "attempt"),
    [
        ({}, 0, None),
        ({"SLURM_RESTART_COUNT": "2"}, 2, 2000),
        ({"SLURM_RESTART_COUNT": "2", "HOLDFAST_ATTEMPT": "2003"}, 2, 2003),
        ({"SLURM_RESTART_COUNT": "many", "HOLDFAST_ATTEMPT": "-1"}, 0, 0),
        ({"HOLDFAST_ATTEMPT": "0"}, 0, 0),
    ],
)
def test_a_script_and_its_ranks_count_attempts_alike(
    environment: dict[str, str], restarts: int, attempt: int | None
) -> None:
    assert restarts_in(environment) == restarts
    assert attempt_in(environment) == attempt


@pytest.mark.parametrize(
    ("line", "bound"),
    [
        ("srun python train.py", False),
        ("srun -N2 -n 16 python train.py -w", False),
        ("srun -N 2 -w node1,node2 python x", True),
        ("srun -wnode1 python x", True),
        ("srun --nodelist=node[1-2] python x", True),
        ("srun --nodefile hosts python x", True),
        ("srun -N2 -- --nodelist", False),
        ("srun -N1 python a : -N1 python b", True),
    ],
)
def test_a_command_line_that_names_its_nodes_is_known(line: str, bound: bool) -> None:
    assert is_bound(line.split()) is bound


def test_a_relaunch_names_the_nodes_before_what_was_typed() -> None:
    srun = ["srun", "-N2", "python", "a b"]

    assert relaunched(srun, ["node1", "node3"], bound=False, overlap=False) == [
        "srun", "--nodes=2", "--nodelist=node1,node3", "-N2", "python", "a b",
    ]  # fmt: skip
    assert relaunched(srun, ["node1"], bound=True, overlap=True) == [
        "srun", "--overlap", "-N2", "python", "a b",
    ]  # fmt: skip


STEPS = """\
StepId=7.batch UserId=0 State=RUNNING NodeList=node1 Nodes=1 Name=batch SrunHost:Pid=(null):0
StepId=7.0 UserId=0 State=RUNNING NodeList=node[1-2] Nodes=2 Name=a b SrunHost:Pid=vm:22248
StepId=7+1.3 UserId=0 State=RUNNING NodeList=(null) Nodes=2 Name=x
"""


def test_steps_are_read_with_their_nodes_and_their_srun() -> None:
    first, second = parse_steps(STEPS)

    assert (first.id, first.number, first.nodes) == ("7.0", "0", ("node1", "node2"))
    assert (first.host, first.pid) == ("vm", 22248)
    assert (second.id, second.number, second.nodes, second.pid) == ("7+1.3", "3", (), 0)
    assert parse_steps("") == []
    with pytest.raises(ValueError, match="scontrol said 'Unable"):
        parse_steps("Unable to think\n")
