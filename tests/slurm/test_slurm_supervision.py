import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.node_text import NodeFacts, parse_nodes
from holdfast.adapters.slurm.jobs.attempts import attempt_in, attempt_number, restarts_in
from holdfast.adapters.slurm.jobs.own_job import parse_steps
from holdfast.adapters.slurm.jobs.srun_command import is_bound, redirects_output, relaunch_command
from holdfast.adapters.slurm.jobs.step_faults import (
    faults_after_end,
    faults_while_running,
)

NAMES = ("node1", "node2", "node3", "node4")
LOST = "Action:Replace holdfast: NvidiaGpuXidErrorPendingReplacement"


def node(name: str, state: str = "MIXED", reason: str = "", boot: str = "b1", start: str = "s1"):
    said = f" Reason={reason} [root@2026-01-01T00:00:00]" if reason else ""
    text = f"NodeName={name} State={state} BootTime={boot} SlurmdStartTime={start}{said}\n"
    return parse_nodes(text)[name]


STATES = ["MIXED", "ALLOCATED", "IDLE", "MIXED+FAIL", "DOWN", "DOWN+NOT_RESPONDING",
          "MIXED+NOT_RESPONDING", "IDLE+INVALID_REG", "MIXED+DRAIN",
          "IDLE+POWER_DOWN"]  # fmt: skip

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

    assert bool(faults_after_end(["node1"], nodes, BEFORE)) is behind
    assert bool(faults_while_running(["node1"], nodes, BEFORE)) is under


def test_a_node_that_was_never_seen_before_has_not_rebooted() -> None:
    nodes = {"node1": node("node1", boot="b2", start="s2")}

    assert faults_after_end(["node1"], nodes, {}) == {}


def test_a_node_that_slurm_has_forgotten_is_a_fault() -> None:
    assert faults_after_end(["node1"], {}, BEFORE) == {"node1": "unknown to Slurm"}
    assert faults_while_running(["node1"], {}, BEFORE) == {}


states = st.builds(
    node, st.just("node1"), st.sampled_from(STATES), st.sampled_from(["", LOST, "mine"]),
    st.sampled_from(["b1", "b2", "None"]), st.sampled_from(["s1", "s2", "None"]),
)  # fmt: skip


@given(states)
def test_what_ends_a_step_explains_its_end(one: NodeFacts) -> None:
    under = faults_while_running(["node1"], {"node1": one}, BEFORE)

    assert under.items() <= faults_after_end(["node1"], {"node1": one}, BEFORE).items()


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


@pytest.mark.parametrize(
    ("line", "redirects"),
    [
        ("srun python train.py --output x", False),
        ("srun -N2 -n 16 python train.py -o x", False),
        ("srun -N 2 -o log python x", True),
        ("srun -N 2 -olog python x", True),
        ("srun --output=log-%t python x", True),
        ("srun --error log python x", True),
        ("srun -N2 -- --output", False),
        ("srun --out=log python x", True),
        ("srun --err log python x", True),
        ("srun -uo log python x", True),
        ("srun -l ./train --output_dir x", False),
        ("srun -N1 a : -o log b", True),
    ],
)
def test_a_command_line_that_redirects_its_output_is_known(line: str, redirects: bool) -> None:
    assert redirects_output(line.split(), {}) is redirects
    assert redirects_output(line.split(), {"SLURM_STDOUTMODE": "log"})


def test_a_relaunch_names_the_nodes_before_what_was_typed() -> None:
    srun = ["srun", "-N2", "python", "a b"]

    assert relaunch_command(srun, ["node1", "node3"], bound=False, overlap=False) == [
        "srun", "--nodes=2", "--nodelist=node1,node3", "-N2", "python", "a b",
    ]  # fmt: skip
    assert relaunch_command(srun, ["node1"], bound=True, overlap=True) == [
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
    with pytest.raises(ValueError, match="unexpected output of scontrol: 'Unable"):
        parse_steps("Unable to think\n")
