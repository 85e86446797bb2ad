"""The deep health check of one node, with made tools and with the real stress-ng."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from checked_node import CheckedNode, stress_text

from holdfast.adapters.host.deep_checks.contract import CheckCommand
from holdfast.adapters.host.deep_checks.table import ROWS
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import check_node, lay_out
from holdfast.apps.clock import SystemClock
from holdfast.apps.main import run
from holdfast.kit.config import load_config
from holdfast.model.node_checks import Level
from tests.engines.host_tools import require_tool

CONFIG_ONLY = "dcgm/diag4-config.json"


@pytest.fixture
def node(tmp_path, capfd) -> CheckedNode:
    return CheckedNode(tmp_path, capfd.readouterr)


def healthy(node: CheckedNode) -> None:
    node.prints("stress-ng", stress_text())


# What is not there


def test_a_bare_node_has_nothing_to_check_and_is_not_blamed(node) -> None:
    code, result = node.check()

    assert code == 0
    assert result["outcome"] == "skipped"
    assert {part["outcome"] for part in result["parts"].values()} == {"skipped"}
    assert node.check("--strict")[0] == 1


def test_a_tool_that_is_missing_is_reported_and_not_punished(node) -> None:
    node.is_a("p5.48xlarge")
    healthy(node)

    code, result = node.check()

    assert code == 0
    assert result["outcome"] == "passed"
    assert result["instance_type"] == "p5.48xlarge"
    for name, tool in (("gpu", "nvidia-smi"), ("dcgm", "dcgmi"), ("nccl", "all_reduce_perf")):
        assert result["parts"][name]["outcome"] == "skipped"
        assert tool in result["parts"][name]["detail"]


def test_gpus_that_the_driver_shows_want_their_tools(node) -> None:
    (node.root / "proc/driver/nvidia/gpus/0000:53:00.0").mkdir(parents=True)

    assert "dcgmi not found" in node.part("dcgm")[2]


# Stress


def test_a_node_under_load_passes_and_its_rates_are_recorded(node) -> None:
    healthy(node)

    _, result = node.check()

    parts = result["parts"]
    assert [parts[name]["outcome"] for name in ("cpu", "memory", "disk")] == ["passed"] * 3
    assert parts["cpu"]["measured"] == {"cpu_ops_per_s": 2783.57}
    assert parts["memory"]["measured"] == {"memory_ops_per_s": 2783.57}
    assert parts["disk"]["measured"] == {
        "disk_read_mb_per_s": 662.13,
        "disk_write_mb_per_s": 875.4,
    }


@pytest.mark.parametrize(
    ("text", "status", "outcome", "why"),
    [
        (stress_text(ran="0.99"), 0, "unknown", "0.99 s instead of 10 s"),
        (stress_text(ran="9.00"), 0, "passed", ""),
        (stress_text(ran="8.99"), 0, "unknown", "8.99 s"),
        ("stress-ng: info: [9] No stress workers invoked\n", 0, "unknown", "output cut off"),
        ("usage: stress [OPTION]\n", 0, "unknown", "output cut off"),
        (stress_text(ops="0.00"), 0, "unknown", "no round completed"),
        (stress_text(), 3, "unknown", "exited with 3"),
        (
            "stress-ng: fail: [9] cpu: matrixprod: detected 3 bit errors, value mismatch\n",
            2, "failed", "bit errors",
        ),
        ("", 0, "unknown", "output cut off"),
    ],
)  # fmt: skip
def test_what_stress_says_is_judged_by_what_it_did(node, text, status, outcome, why) -> None:
    node.prints("stress-ng", text, status=status)

    code, found, detail = node.part("cpu")

    assert found == outcome
    assert why in detail
    assert code == (1 if outcome == "failed" else 0)


def test_stress_alone_is_enough_and_is_never_called_without_a_load(node) -> None:
    node.tool(
        "stress",
        "assert '--cpu' in argv or '--hdd' in argv or '--vm' in argv\n"
        "print('stress: info: [9] dispatching hogs: 2 cpu, 0 io, 0 vm, 0 hdd')\n"
        "print(f'stress: info: [9] successful run completed in {argv[-1]}s')",
    )

    _, result = node.check("--stress-time", "3s")

    assert [result["parts"][one]["outcome"] for one in ("cpu", "memory", "disk")] == ["passed"] * 3
    command = result["parts"]["memory"]["command"]
    workers, each = int(command[2]), int(command[4])
    assert 0.5 * 102400 * 1024 < workers * each < 102400 * 1024
    assert command[-2:] == ["--timeout", "3"]


@pytest.mark.parametrize(("rate", "outcome"), [("10.00", "passed"), ("9.99", "failed")])
def test_a_disk_that_stalls_is_found(node, rate, outcome) -> None:
    node.prints("stress-ng", stress_text(write=rate))

    code, found, detail = node.part("disk")

    assert found == outcome
    assert ("disk_write_mb_per_s" in detail) == (outcome == "failed")
    assert code == (outcome == "failed")


def test_a_control_group_that_allows_less_memory_is_minded(node) -> None:
    group = node.root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{30 << 20}\n")
    (group / "memory.current").write_text(f"{10 << 20}\n")
    healthy(node)

    _, result = node.check("--only", "memory")

    command = result["parts"]["memory"]["command"]
    assert int(command[command.index("--vm-bytes") + 1]) <= 0.6 * (20 << 20)


def test_a_disk_without_room_is_left_alone(node) -> None:
    healthy(node)
    node.disk = Path("/nowhere")

    assert node.part("disk") == (0, "skipped", "/nowhere: No such file or directory")


@pytest.mark.tools
def test_the_real_stress_ng_passes_and_leaves_nothing(node) -> None:
    node.real("stress-ng")

    code, result = node.check("--stress-time", "6s")

    assert code == 0
    for name in ("cpu", "memory", "disk"):
        part = result["parts"][name]
        assert part["outcome"] == "passed", part
        assert all(value > 0 for value in part["measured"].values())
        assert part["measured"]
    assert list(node.disk.iterdir()) == []


@pytest.mark.tools
def test_the_real_stress_passes(node) -> None:
    node.real("stress")

    code, result = node.check("--stress-time", "1s")

    assert code == 0
    assert [result["parts"][one]["outcome"] for one in ("cpu", "memory", "disk")] == ["passed"] * 3
    assert list(node.disk.iterdir()) == []


@pytest.mark.tools
def test_a_real_stress_ng_that_is_ended_early_says_nothing(node) -> None:
    require_tool("stress-ng")
    node.tool(
        "stress-ng",
        "import subprocess\n"
        "one = subprocess.Popen(['stress-ng', *argv])\n"
        "time.sleep(1)\none.terminate()\nsys.exit(one.wait())",
    )

    code, outcome, detail = node.part("cpu", "--stress-time", "5s")

    assert (code, outcome) == (0, "unknown")
    assert "instead of 5 s" in detail


# GPUs


def a_p5(node: CheckedNode) -> None:
    node.is_a("p4d.24xlarge")
    node.more = "[expected]\ngpus = 2\n"


def test_a_missing_gpu_fails_the_node(node) -> None:
    a_p5(node)
    node.records("nvidia-smi", "nvidia-smi/healthy.xml")
    node.more = "[expected]\ngpus = 99\n"

    code, outcome, detail = node.part("gpu")

    assert (code, outcome) == (1, "failed")
    assert "99" in detail


LINKS = "GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n" + "".join(
    f"\t Link {link}: 25 GB/s\n" for link in range(11)
)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [("\t Link 11: 25 GB/s\n", "passed"), ("\t Link 11: <inactive>\n", "failed"), ("", "failed")],
)
def test_a_link_that_is_down_on_one_gpu_fails_the_node(node, last, outcome) -> None:
    a_p5(node)
    whole = LINKS.format(gpu=0) + "\t Link 11: 25 GB/s\n"
    node.prints("nvidia-smi", whole + LINKS.format(gpu=1) + last)

    code, found, detail = node.part("nvlink")

    assert (code, found) == (outcome == "failed", outcome)
    assert ("GPU 1 has 11 active NVLinks, expected 12" in detail) == (outcome == "failed")


def test_all_links_short_by_one_are_found_by_the_instance_type(node) -> None:
    a_p5(node)
    node.prints("nvidia-smi", LINKS.format(gpu=0) + LINKS.format(gpu=1))

    assert node.part("nvlink")[1] == "failed"


def test_gpus_of_unknown_type_are_compared_with_each_other(node) -> None:
    node.more = "[expected]\ngpus = 2\n"
    node.prints("nvidia-smi", LINKS.format(gpu=0) + LINKS.format(gpu=1))

    assert node.part("nvlink")[1] == "passed"


def test_a_gpu_with_fewer_links_than_the_others_is_found(node) -> None:
    node.more = "[expected]\ngpus = 2\n"
    whole = LINKS.format(gpu=0) + "\t Link 11: 25 GB/s\n"
    node.prints("nvidia-smi", whole + LINKS.format(gpu=1))

    assert node.part("nvlink")[1] == "failed"


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 0), ("NVLink is not supported\n", 0), (LINKS.format(gpu=0), 9)],
)
def test_links_that_cannot_be_read_say_nothing(node, text, status) -> None:
    a_p5(node)
    node.prints("nvidia-smi", text, status=status)

    assert node.part("nvlink")[:2] == (0, "unknown")


@pytest.mark.parametrize(
    ("recording", "status", "outcome"),
    [
        ("dcgm/diag4-pass.json", 0, "passed"),
        (CONFIG_ONLY, 226, "passed"),
        ("dcgm/diag4-config-and-isolate.json", 226, "failed"),
        ("dcgm/diag4-memory.json", 226, "failed"),
        ("dcgm/diag-no-engine.txt", 235, "unknown"),
        ("dcgm/diag-truncated.json", 0, "unknown"),
        ("dcgm/diag4-runtime-error.json", 226, "unknown"),
    ],
)
def test_a_diagnosis_is_judged_by_its_document(node, recording, status, outcome) -> None:
    a_p5(node)
    node.records("dcgmi", recording, status=status)

    code, found, detail = node.part("dcgm")

    assert (code, found) == (outcome == "failed", outcome)
    assert recording == "dcgm/diag4-pass.json" or detail


@pytest.mark.parametrize(("level", "number"), [("quick", "2"), ("standard", "3"), ("long", "4")])
def test_the_level_is_that_of_the_diagnosis(node, level, number) -> None:
    a_p5(node)
    node.records("dcgmi", "dcgm/diag4-pass.json")

    _, result = node.check("--only", "dcgm", "--level", level)

    assert result["parts"]["dcgm"]["command"][1:] == ["diag", "-r", number, "-j"]
    assert result["parts"]["dcgm"]["facts"]["level"] == number


def test_a_tool_that_may_not_do_its_work_is_reported_with_its_words(node) -> None:
    words = "stress-ng: error: cannot lock memory: Operation not permitted"
    node.tool("stress-ng", f"import sys; print({words!r}, file=sys.stderr); sys.exit(3)")

    code, outcome, detail = node.part("cpu")

    assert (code, outcome) == (0, "unknown")
    assert detail.startswith(f"exited with 3: {words}; ")


def test_a_tool_that_is_killed_says_nothing(node) -> None:
    a_p5(node)
    node.tool("dcgmi", "os.kill(os.getpid(), 9)")

    code, outcome, detail = node.part("dcgm")

    assert (code, outcome) == (0, "unknown")
    assert "terminated by signal 9" in detail
    assert node.part("dcgm", "--strict")[0] == 1


@pytest.mark.parametrize(
    ("recording", "outcome"),
    [
        ("nccl/ok.txt", "passed"),
        ("nccl/wrong.txt", "failed"),
        ("nccl/slow.txt", "failed"),
        ("nccl/truncated.txt", "unknown"),
        ("nccl/unchecked.txt", "unknown"),
    ],
)
def test_collectives_are_right_and_fast(node, recording, outcome) -> None:
    a_p5(node)
    node.more += '[thresholds."p4d.24xlarge"]\nnccl_gb_per_s = 380\n'
    node.records("all_reduce_perf", recording)

    assert node.part("nccl")[1] == outcome


# Amazon's devices


@pytest.mark.parametrize(
    ("recording", "outcome"),
    [("ls-16.json", "passed"), ("ls-15.json", "failed"), ("ls-truncated.json", "unknown")],
)
def test_neuron_devices_are_counted(node, recording, outcome) -> None:
    node.is_a("trn1.32xlarge")
    node.records("neuron-ls", f"neuron/{recording}")

    assert node.part("neuron")[1] == outcome


@pytest.mark.parametrize(
    ("recording", "outcome"), [("fi-32.txt", "passed"), ("fi-31.txt", "failed")]
)
def test_efa_devices_are_counted(node, recording, outcome) -> None:
    node.more = "[expected]\nefa = 32\n"
    node.records("fi_info", f"efa/{recording}")

    assert node.part("efa")[1] == outcome


# Thresholds, input, output


def test_a_threshold_of_the_type_wins_over_that_of_all(node) -> None:
    node.is_a("ml.p5.48xlarge")
    healthy(node)
    node.more = "[thresholds.default]\ncpu_ops_per_s = 9999\n"
    assert node.part("cpu")[1] == "failed"

    node.more += '[thresholds."p5.48xlarge"]\ncpu_ops_per_s = 2783.57\n'
    assert node.part("cpu")[1] == "passed"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[thresholds.default]\ncpu_ops_per_minute = 3\n", "did you mean"),
        ("[thresholds.default]\ncpu_ops_per_s = -3\n", "must not be negative"),
        ('[thresholds.default]\ncpu_ops_per_s = "3 GB/s"\n', "expected a number"),
        ('instance_type = "p99.huge"\n', "unknown instance type"),
    ],
)
def test_a_wrong_configuration_is_reported_and_nothing_is_run(node, capfd, more, said) -> None:
    node.tool("stress-ng", f"open({str(node.folder / 'ran')!r}, 'w')")
    node.more = more

    assert run(node.argv()) == 2
    assert said in capfd.readouterr().err
    assert not (node.folder / "ran").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--only", "gpus"],
        ["--only", "cpu", "--skip", "cpu"],
        ["--stress-time", "10ms"],
        ["--level", "5"],
        ["--instance-type", "p99.huge"],
        ["--log", "/nowhere/log"],
        ["--stream", "/nowhere/stream"],
    ],
)
def test_bad_input_ends_with_2_and_nothing_is_run(node, capfd, options) -> None:
    node.tool("stress-ng", f"open({str(node.folder / 'ran')!r}, 'w')")

    assert run(node.argv(*options)) == 2
    assert options[0] in capfd.readouterr().err
    assert not (node.folder / "ran").exists()


@pytest.mark.parametrize("option", ["--log", "--stream", "--result"])
def test_a_file_that_cannot_be_written_in_the_end_changes_nothing_about_the_node(
    node, capfd, option
) -> None:
    healthy(node)

    code = run([*node.argv(option, "/dev/full"), "-o", "json"])

    captured = capfd.readouterr()
    assert code == 0
    assert json.loads(captured.out)["outcome"] == "passed"
    assert captured.err.count(f"{option} /dev/full cannot be written: No space left") == 1


def test_what_a_tool_says_is_shown_in_one_line_that_steers_no_terminal(node) -> None:
    a_p5(node)
    node.prints("nvidia-smi", "\x1b[2J\x1b[31mUnable to\n talk\x07 to the driver\n", status=9)

    _, outcome, detail = node.part("gpu")

    assert outcome == "unknown"
    assert "Unable to" in detail
    assert detail.isprintable()


def test_checks_go_by_the_names_that_sagemaker_has_for_them(node, capfd) -> None:
    def made(*options: str) -> list[str]:
        assert run([*node.argv("--dry-run", *options), "-o", "json"]) == 0
        return [step["check"] for step in json.loads(capfd.readouterr().out)]

    both = made("--check", "InstanceStress", "--check", "InstanceConnectivity")

    assert made("--check", "InstanceConnectivity") == ["efa-loopback", "nccl", "nccom"]
    assert set(made("--check", "InstanceStress")) == set(both) - {"efa-loopback", "nccl", "nccom"}
    assert both == made()


def test_whoever_begins_a_check_names_its_kinds_in_the_environment(
    node, capfd, monkeypatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_KINDS", "InstanceStress InstanceConnectivity")
    assert run(node.argv("--dry-run")) == 0
    both = capfd.readouterr().out

    monkeypatch.setenv("HOLDFAST_CHECK_KINDS", "InstanceConnectivity")
    assert run(node.argv("--dry-run")) == 0
    one = [line.split()[0] for line in capfd.readouterr().out.splitlines()[1:]]

    assert "\ncpu " in both
    assert one == ["efa-loopback", "nccl", "nccom"]


def test_only_and_skip_choose(node) -> None:
    healthy(node)

    assert list(node.check("--only", "disk", "--only", "cpu")[1]["parts"]) == ["cpu", "disk"]
    left = list(node.check("--skip", "cpu")[1]["parts"])
    assert left == [row.name for row in ROWS if row.name != "cpu"]


def test_a_dry_run_shows_and_runs_nothing(node, capfd) -> None:
    a_p5(node)
    node.tool("dcgmi", f"open({str(node.folder / 'ran')!r}, 'w')")

    assert run(node.argv("--dry-run")) == 0
    shown = {line.split()[0]: line for line in capfd.readouterr().out.splitlines()}
    assert "3m " in shown["dcgm"]
    assert shown["dcgm"].endswith("dcgmi diag -r 2 -j")
    assert "skipped: neither stress-ng nor stress found: install one" in shown["cpu"]
    assert not (node.folder / "ran").exists()


def test_the_last_line_says_what_failed(node, capfd) -> None:
    node.is_a("trn1.32xlarge")
    node.records("neuron-ls", "neuron/ls-15.json")
    healthy(node)

    assert run(node.argv()) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "failed: neuron: neuron-ls shows 15 devices, expected 16"

    assert run(node.argv("--skip", "neuron")) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "passed: 3 passed, 7 skipped"


def test_the_log_has_the_lines_of_hyperpod(node) -> None:
    a_p5(node)
    healthy(node)
    node.records("dcgmi", "dcgm/diag4-pass.json")
    node.records("nvidia-smi", "nvidia-smi/healthy.xml")
    log = node.folder / "log"
    log.write_text("earlier\n")

    node.check("--log", str(log), "--only", "cpu", "--only", "gpu", "--only", "dcgm")

    cores = len(os.sched_getaffinity(0))
    lines = log.read_text().splitlines()
    assert lines[:2] == ["earlier", "GpuPci Count check success"]
    assert lines[2:4] == [
        "Executing Hardware stress check with command: stress-ng, and args: "
        f"[--cpu {cores} --cpu-method matrixprod --verify --metrics --timeout 10]",
        "stress-ng success",
    ]
    assert lines[4].startswith("DCGM diagnostic health summary: dcgmCheckLevel: 2 dcgmVersion: ")
    assert lines[4].endswith("replacementRequired: false rebootRequired:false")
    assert len(lines) == 5


def test_the_log_says_what_failed_and_what_is_needed(node) -> None:
    a_p5(node)
    node.records("dcgmi", "dcgm/diag4-remap.json", status=226)
    node.prints("stress-ng", "")
    log = node.folder / "log"

    node.check("--log", str(log), "--only", "cpu", "--only", "dcgm")

    lines = log.read_text().splitlines()
    assert lines[1].startswith("stress-ng unknown: ")
    assert "replacementRequired: true" in lines[2]
    assert lines[3].startswith("dcgm check failed: ")


def test_with_strict_one_unknown_result_fails_among_good_ones(node) -> None:
    a_p5(node)
    healthy(node)
    node.prints("dcgmi", "")

    assert node.check()[0] == 0
    assert node.check("--strict")[0] == 1
    assert node.check("--strict", "--skip", "dcgm")[0] == 0


class RecordingWatcher:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.left: list[timedelta] = []

    def begun(self, name, plan, left) -> None:
        self.left.append(left)

    def ended(self, result) -> None:
        pass


def test_the_time_that_is_left_is_that_of_what_is_to_come(node) -> None:
    healthy(node)
    remediation = lay_out(
        load_config(node.write_config(), CheckConfig),
        Level.QUICK,
        names=["cpu", "memory", "disk"],
        stress_time=timedelta(seconds=5),
    )
    watcher = RecordingWatcher()

    check_node(remediation, watcher, SystemClock())

    assert watcher.left == [timedelta(seconds=seconds) for seconds in (15, 10, 5)]


def test_only_a_disk_is_to_blame_for_a_load_that_does_not_end(node) -> None:
    healthy(node)
    config = load_config(node.write_config(), CheckConfig)
    remediation = lay_out(config, Level.QUICK, names=["cpu", "memory", "disk"])

    blamed = [
        name for name, plan in remediation.steps if isinstance(plan, CheckCommand) and plan.if_hung
    ]

    assert blamed == ["disk"]


# Ends


def processes_of(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(int(entry.name))
    return found


@pytest.mark.tools
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_check_that_is_ended_takes_its_tools_with_it(node, number, code) -> None:
    node.real("stress-ng")
    argv = node.argv("--only", "disk", "--stress-time", "51s")
    process = subprocess.Popen([sys.executable, "-m", "holdfast", *argv])
    deadline = time.monotonic() + 30
    while not list(node.disk.glob(".holdfast-check-*/*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(number)

    assert process.wait(timeout=30) == code
    while [one for one in processes_of("stress-ng") if _works_in(one, node.disk)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(node.disk.iterdir()) == []


def _works_in(process: int, folder: Path) -> bool:
    try:
        return str(folder) in str(Path(f"/proc/{process}/cwd").readlink())
    except OSError:
        return False


def test_the_result_is_one_json_document(node, capfd) -> None:
    healthy(node)

    assert run([*node.argv("--only", "cpu"), "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["level"] == "quick"
