"""``holdfast check pairs --test``: by what listens on every node, by srun and by mpirun."""

import json
import os
import sys
from contextlib import ExitStack
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from checked_node import CheckedNode
from pair_node import TOKEN, listening, serving, welcomed

from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.pair_runners import PairTestOptions, Served
from holdfast.apps.main import run
from holdfast.kit.config import load_config

NCCL = """\
# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 2147483648 step: 2(factor)
#  Rank  0 Group  0 Pid   1234 on         n1 device  0 [0000:53:00] NVIDIA H100
#  Rank  1 Group  0 Pid   1234 on         {other} device  0 [0000:53:00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  1073741824     268435456     float     sum      -1   9153.4  234.61  {rate}      0   9155.0  234.57  437.79      0
  2147483648     536870912     float     sum      -1   9153.4  234.61  {rate}      0   9155.0  234.57  437.79      {wrong}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 52.9753
"""  # noqa: E501
NCCOM = """\
       size(B)    count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)
    1073741824       268435456    fp32       41806          23.92          {rate}
Avg bus bandwidth:      18.37GB/s
"""


class Pairs:
    """The command, and what it finds on its PATH."""

    def __init__(self, folder: Path, capture: Any) -> None:
        self.node = CheckedNode(folder, capture)
        self.capture = capture

    def ask(self, nodes: str, *options: str) -> tuple[int, dict[str, Any], str]:
        argv = ["check", "pairs", "--nodes", nodes, *options]
        code = run([*argv, "--config", str(self.node.write_config()), "--output", "json"])
        captured = self.capture()
        return code, json.loads(captured.out) if captured.out else {}, captured.err


@pytest.fixture
def pairs(tmp_path, capfd, monkeypatch) -> Pairs:
    made = Pairs(tmp_path, capfd.readouterr)
    made.node.more = "[thresholds.default]\npair_tcp_us = 0\npair_tcp_mb_per_s = 0\n"
    monkeypatch.setenv("PATH", f"{made.node.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)
    return made


# What listens on every node


def test_a_node_that_others_cannot_reach_is_found_by_what_listens_on_each(pairs) -> None:
    with ExitStack() as stack:
        good = [stack.enter_context(serving(pairs.node.write_config()))[0] for _ in range(3)]
        bad = stack.enter_context(listening(welcomed(lambda channel: channel.read(10))))
        names = [f"127.0.0.1:{port}" for port in sorted([*good, bad])]
        code, result, said = pairs.ask(
            ",".join(names), "--test", "tcp", "--on", "serve", "--rounds", "2"
        )

    assert code == 1, said
    assert result["bad_nodes"] == [f"127.0.0.1:{bad}"]
    checks = {check["node"]: check["parts"][0] for check in result["checks"]}
    [finding] = checks[f"127.0.0.1:{bad}"]["findings"]
    assert (finding["severity"], finding["remedy"], finding["reason"]) == (
        "fatal", "replace", "PairTestFailed",
    )  # fmt: skip
    assert checks[f"127.0.0.1:{bad}"]["outcome"] == "failed"
    assert all(not part["findings"] for name, part in checks.items() if not name.endswith(str(bad)))
    assert any(part["measured"].get("pair_tcp_mb_per_s") for part in checks.values())


def test_if_the_first_node_cannot_be_asked_the_second_is(pairs) -> None:
    wanted = requested(pairs)
    dies = welcomed(lambda channel: channel.read(10))
    with serving(pairs.node.config) as (good, _), listening(dies) as bad:
        ask = Served(wanted, TOKEN)
        answers = [ask(pair) for pair in permutations((f"127.0.0.1:{bad}", f"127.0.0.1:{good}"))]

    assert [answer.passed for answer in answers] == [False, False]


def requested(pairs: Pairs, **changes: Any) -> PairTestOptions:
    return PairTestOptions(
        tests=("tcp",),
        config=load_config(pairs.node.write_config(), CheckConfig),
        config_file=None,
        **{"timeout": timedelta(seconds=60), **changes},
    )


def test_a_test_that_does_not_end_has_failed_and_nobody_else_is_asked(pairs) -> None:
    hangs = welcomed(lambda channel: channel.read(10_000))
    with serving(pairs.node.write_config()) as (good, reported), listening(hangs) as bad:
        ask = Served(requested(pairs, timeout=timedelta(milliseconds=500)), TOKEN)
        answer = ask((f"127.0.0.1:{bad}", f"127.0.0.1:{good}"))

    assert (answer.passed, reported) == (False, [])
    assert answer.why == f"127.0.0.1:{bad}: the test did not end within 0.5 s"


def test_a_test_that_is_broken_off_is_not_waited_for(pairs) -> None:
    hangs = welcomed(lambda channel: channel.read(10_000))
    with listening(hangs) as one, listening(hangs) as other:
        ask = Served(requested(pairs, is_over=lambda: True), TOKEN)
        answer = ask((f"127.0.0.1:{one}", f"127.0.0.1:{other}"))

    assert answer.passed is None
    assert "was cancelled" in answer.why


def test_nodes_that_do_not_listen_are_blamed_for_nothing(pairs) -> None:
    code, result, said = pairs.ask("127.0.0.1:1,127.0.0.1:2", "--test", "tcp", "--on", "serve")

    assert (code, result) == (1, {})
    assert "no pair could be tested: 127.0.0.1:1 and 127.0.0.1:2: nothing listens at" in said


# srun and mpirun, played: they run what they are given, once for each task


LAUNCHER = """
import json, subprocess
with open({seen!r}, 'a') as seen:
    print(json.dumps(argv), file=seen)
option = lambda name: next((a.partition('=')[2] for a in argv if a.startswith(name + '=')), '')
at = next(n for n, a in enumerate(argv) if a.startswith('/') or a == 'all_reduce_perf')
nodes = option('--nodelist').split(',')
if 'holdfast' in argv:
    tasks = [subprocess.Popen(argv[at:], env={{**os.environ, 'SLURM_PROCID': str(rank),
        'OMPI_COMM_WORLD_RANK': str(rank)}}) for rank in range(2)]
    sys.exit(max(task.wait() for task in tasks))
{code}
"""


def launcher(pairs: Pairs, name: str, code: str) -> Path:
    seen = pairs.node.folder / "seen"
    pairs.node.tool(name, LAUNCHER.format(seen=str(seen), code=code))
    return seen


def test_both_ends_are_tasks_of_one_srun_and_the_first_listens(pairs) -> None:
    seen = launcher(pairs, "srun", "")
    pairs.node.prints("scontrol", "NodeName=n1 NodeAddr=127.0.0.1 NodeHostName=n1 State=IDLE\n")

    code, result, said = pairs.ask(
        "n1,n2", "--test", "tcp", "--on", "slurm", "--rounds", "1", "--launch-option=--mpi=none"
    )

    assert code == 0, said
    [answer] = result["answers"]
    assert answer["answer"]["passed"] is True, said
    argv = json.loads(seen.read_text())
    assert argv[:6] == [
        "--time=11", "--nodes=2", "--ntasks-per-node=1", "--nodelist=n1,n2", "--immediate=60",
        "--mpi=none",
    ]  # fmt: skip
    assert argv[6:] == [
        sys.executable, "-m", "holdfast", "check", "pair", "--rank-from", "slurm",
        "--with", "127.0.0.1", "--only", "tcp", "--output", "json",
        "--config", str(pairs.node.config),
    ]  # fmt: skip
    assert TOKEN not in seen.read_text()


def test_both_ends_are_ranks_of_one_mpirun(pairs) -> None:
    seen = launcher(pairs, "mpirun", "")

    code, result, said = pairs.ask(
        "127.0.0.1,127.0.0.2", "--test", "tcp", "--on", "mpi", "--rounds", "1"
    )

    assert code == 0, said
    assert result["answers"][0]["answer"]["passed"] is True, said
    assert json.loads(seen.read_text())[:6] == [
        "-np", "2", "--host", "127.0.0.1:1,127.0.0.2:1", "-x", "HOLDFAST_CHECK_TOKEN",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('{')", "its result cannot be read"),
        ("print('{}')", "its result has an incompatible version"),
        ("print('slurmstepd: error: *** killed ***', file=sys.stderr)\nsys.exit(1)", "killed"),
        ("sys.exit(7)", "it exited with 7"),
    ],
)
def test_a_step_without_a_result_blames_nobody(pairs, code, why) -> None:
    pairs.node.tool("srun", code)
    pairs.node.prints("scontrol", "NodeName=n1 NodeAddr=127.0.0.1 NodeHostName=n1 State=IDLE\n")

    exit_code, result, said = pairs.ask("n1,n2", "--test", "tcp", "--on", "slurm")

    assert (exit_code, result) == (1, {})
    assert why in said


def test_each_step_has_a_token_of_its_own_that_no_command_line_shows(pairs) -> None:
    seen = pairs.node.folder / "seen"
    code = f"print(os.environ['HOLDFAST_CHECK_TOKEN'], *argv, file=open({str(seen)!r}, 'a'))"
    pairs.node.tool("srun", f"{code}\nsys.exit(7)")
    pairs.node.prints("scontrol", "NodeName=n1 NodeAddr=127.0.0.1 NodeHostName=n1 State=IDLE\n")

    for _ in range(2):
        pairs.ask("n1,n2", "--test", "tcp", "--on", "slurm")

    (one, *first), (other, *_) = (line.split() for line in seen.read_text().splitlines())
    assert len({one, other, TOKEN}) == 3
    assert len(one) == 64
    assert one not in first


def test_a_step_that_does_not_end_has_failed(pairs) -> None:
    pairs.node.tool("srun", "time.sleep(60)")
    pairs.node.prints("scontrol", "NodeName=n1 NodeAddr=127.0.0.1 NodeHostName=n1 State=IDLE\n")

    options = ["--test", "tcp", "--on", "slurm", "--rounds", "1", "--timeout", "1s"]
    _, result, _ = pairs.ask("n1,n2", *options)

    assert result["answers"][0]["answer"]["passed"] is False


def test_a_step_stops_waiting_for_nodes_before_its_time_is_over(pairs) -> None:
    seen = launcher(pairs, "srun", "print('srun: error: Nodes are busy', file=sys.stderr)")

    pairs.node.more += "[expected]\ngpus = 8\n"
    options = ["--test", "nccl", "--on", "slurm", "--rounds", "1", "--timeout", "20s"]
    code, result, said = pairs.ask("n1,n2", *options)

    assert (code, result) == (1, {})
    assert "no pair could be tested" in said
    assert "--immediate=10" in json.loads(seen.read_text())


@pytest.mark.parametrize(
    ("text", "status", "passed", "why"),
    [
        (NCCL.format(other="n2", rate="437.79", wrong=0), 0, True, ""),
        (NCCL.format(other="n2", rate="80.00", wrong=0), 0, True, ""),
        (NCCL.format(other="n2", rate="79.99", wrong=0), 0, False, "pair_nccl_gb_per_s is 79.99"),
        (NCCL.format(other="n2", rate="437.79", wrong=3), 0, False, "was wrong"),
        (NCCL.format(other="n1", rate="0.00", wrong=0), 0, None, "ran on one node only"),
        (NCCL.format(other="n2", rate="437.79", wrong=0), 1, None, "exited with 1"),
        (NCCL.partition("# Out")[0].format(other="n2", rate="1", wrong=0), 0, None, "is cut off"),
        ("n2: Test NCCL failure common.cu:958 'unhandled cuda error'\n", 1, None, "NCCL failure"),
        ("srun: error: Unable to allocate resources: Nodes are busy\n", 1, None, "no results"),
    ],
)  # fmt: skip
def test_nccl_between_two_nodes_is_judged_by_its_largest_size(
    pairs, text, status, passed, why
) -> None:
    launcher(pairs, "srun", f"print({text!r}, end='')\nsys.exit({status})")
    pairs.node.more = 'instance_type = "p5.48xlarge"\n'

    _, result, said = pairs.ask("n1,n2", "--test", "nccl", "--on", "slurm", "--rounds", "1")

    if passed is None:
        assert result == {}
        assert why in said
    else:
        [answer] = result["answers"]
        assert answer["answer"]["passed"] is passed
        assert why in answer["answer"]["why"]
        assert "--ntasks-per-node=8" in answer["answer"]["parts"][0]["command"]


def test_a_collective_that_hangs_has_failed(pairs) -> None:
    launcher(pairs, "mpirun", "time.sleep(60)")
    pairs.node.more = "[expected]\ngpus = 4\n"

    _, result, _ = pairs.ask(
        "n1,n2", "--test", "nccl", "--on", "mpi", "--rounds", "1", "--timeout", "1s"
    )

    [answer] = result["answers"]
    assert answer["answer"]["passed"] is False
    assert "hung" in answer["answer"]["why"]
    assert answer["answer"]["parts"][0]["command"][:5] == [
        "mpirun", "-np", "8", "--host", "n1:4,n2:4",
    ]  # fmt: skip


BROKEN = """
if 'n3' in nodes:
    import random
    if random.Random(len(open({seen!r}).readlines())).random() < 0.5:
        print({slow!r}, end='')
        sys.exit(0)
print({good!r}, end='')
"""


def test_a_node_that_is_slow_half_of_the_time_is_found_in_rounds(pairs) -> None:
    good, slow = (NCCL.format(other="x", rate=rate, wrong=0) for rate in ("437.79", "12.00"))
    seen = pairs.node.folder / "seen"
    launcher(pairs, "srun", BROKEN.format(seen=str(seen), good=good, slow=slow))
    pairs.node.more = 'instance_type = "p5.48xlarge"\n'

    code, result, _ = pairs.ask(
        "n1,n2,n3,n4,n5,n6,n7,n8", "--test", "nccl", "--on", "slurm", "--rounds", "20"
    )

    assert (code, result["bad_nodes"], result["is_settled"]) == (1, ["n3"], True)
    parts = {check["node"]: check["parts"][0] for check in result["checks"]}
    assert parts["n3"]["outcome"] == "failed"
    assert {part["outcome"] for name, part in parts.items() if name != "n3"} == {"passed"}
    assert parts["n1"]["measured"] == {"pair_nccl_gb_per_s": 437.79}


def test_nccom_is_begun_on_the_first_of_both_nodes(pairs) -> None:
    launcher(pairs, "srun", f"print({NCCOM.format(rate='18.37')!r}, end='')")
    pairs.node.more = (
        'instance_type = "trn1.32xlarge"\n'
        '[thresholds."trn1.32xlarge"]\npair_nccom_gb_per_s = 18.38\n'
    )

    _, result, _ = pairs.ask("n1,n2", "--test", "nccom", "--on", "slurm", "--rounds", "1")

    [answer] = result["answers"]
    assert answer["answer"]["passed"] is False
    command = " ".join(answer["answer"]["parts"][0]["command"])
    assert command.startswith("srun --time=11 --nodes=1 --ntasks-per-node=1 --nodelist=n1 ")
    assert "NEURON_RT_ROOT_COMM_ID=n1:" in command
    assert "nccom-test -r 64 -N 2 -b 1GB -e 1GB -d fp32 -c allr --hosts n1 n2" in command


# Input


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "give a COMMAND, or --test and --on"),
        (["--test", "tcp"], "give a COMMAND, or --test and --on"),
        (["--on", "slurm"], "give a COMMAND, or --test and --on"),
        (["--test", "tcp", "--on", "slurm", "--", "true"], "give a COMMAND, or --test and --on"),
        (["--test", "ping", "--on", "slurm"], "'ping' is not one of"),
        (["--test", "nccl", "--on", "serve"], "--test nccl needs --on slurm or --on mpi"),
        (["--test", "tcp", "--on", "mpi"], "mpirun not found"),
        (["--test", "tcp", "--on", "serve", "--token-file", "/nowhere"], "--token-file /nowhere"),
    ],
)
def test_what_does_not_fit_together_is_refused(pairs, monkeypatch, options, why) -> None:
    monkeypatch.setenv("PATH", str(pairs.node.bin))

    argv = ["check", "pairs", "--nodes", "n1,n2", *options]
    assert run(argv) == 2
    assert why in pairs.capture().err


@pytest.mark.parametrize("test", ["nccl", "nccom"])
def test_a_node_of_unknown_type_is_not_guessed_at(pairs, test) -> None:
    launcher(pairs, "srun", "sys.exit(3)")

    _, result, said = pairs.ask("n1,n2", "--test", test, "--on", "slurm")

    assert result == {}
    assert "unknown; set " in said
