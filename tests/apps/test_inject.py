import json
import os
import re
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_runs import machine, node

from holdfast.adapters.local import faults
from holdfast.adapters.local.layout import NodeDir
from holdfast.adapters.local.machine import LocalMachine
from holdfast.apps.exit_codes import ExitCode
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.kernel_log import kernel_line as parsed
from holdfast.detectors.table import detectors
from holdfast.kit.processes import descendants, is_alive, start_time
from holdfast.model.errors import BackendError
from holdfast.model.health import Remedy
from holdfast.model.jobs import JobPhase
from holdfast.model.names import Reason
from holdfast.model.nodes import PastFault

AGENT = [sys.executable, "-c", "import time; time.sleep(60)"]
RANK = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
Path(sys.argv[1]).touch()
time.sleep(60)
"""
DEADLINE_S = 90


def wait_until(condition) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def state(pid: int) -> str:
    """The state letter of a process: T is stopped; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def goes_on(pid: int) -> bool:
    return state(pid) in ("R", "S", "D")


class Powered:
    """A run whose node 1 is a real machine with a rank on it."""

    def __init__(self, runs, tmp_path) -> None:
        self.store = runs.add("train", nodes=(1, 2), ranks=(2, 1))
        self.directory = runs.directory("train").node(node(1))
        self.machine = LocalMachine(
            provider_id=machine(1), directory=self.directory, boots_at=datetime.now(UTC)
        )
        self.machine.boot(AGENT)
        ready = tmp_path / "ready"
        argv = [sys.executable, "-c", RANK, str(ready)]
        self.machine.launch("train/1/1", argv, dict(os.environ), tmp_path / "log")
        wait_until(ready.exists)
        wait_until(lambda: "task" in faults.powered_processes(self.directory))
        self.pids = faults.powered_processes(self.directory)
        below = descendants(self.pids["node"])
        self.everything = [self.pids["node"], *below]
        self.child = next(pid for pid in below if pid not in self.pids.values())

    def cut(self) -> None:
        self.machine.cut_power(datetime.now(UTC))


@pytest.fixture
def powered(runs, tmp_path):
    one = Powered(runs, tmp_path)
    yield one
    one.cut()


# Other faults of the kernel's log


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sxid", "20034"], f"the node is replaced ({Reason.XID_REPLACE})."),
        (
            ["sxid", "22003", "--severity", "non-fatal"],
            f"the node is replaced ({Reason.XID_REPLACE}).",
        ),
        (["sxid", "20001", "--severity", "non-fatal"], f"{Reason.SXID_WARNING} is recorded"),
        (["sxid", "11012", "--severity", "correctable"], f"{Reason.SXID_WARNING} is recorded"),
        (["neuron"], f"the node is replaced ({Reason.NEURON_SRAM})."),
        (["neuron", "dma_error"], f"the node is replaced ({Reason.NEURON_DMA})."),
        (
            ["neuron", "HANG_ON_COLLECTIVES"],
            f"the node is replaced once no job runs on it ({Reason.NEURON_HANG}).",
        ),
        (["efa"], f"the node is rebooted ({Reason.EFA_INIT_FAILED})."),
        (["efa", "timeout"], f"{Reason.EFA_COMMAND_TIMEOUT} is recorded"),
        (["oom"], f"{Reason.OOM_KILLING} is recorded, and no repair follows."),
        (["oom", "host"], f"{Reason.OOM_KILLING} is recorded, and no repair follows."),
        (["disk"], f"the node is rebooted once no job runs on it ({Reason.READONLY_FILESYSTEM})."),
        (["disk", "xfs-shutdown"], "the node is rebooted once no job runs on it"),
        (["disk", "io-error"], f"{Reason.IO_ERROR} is recorded, and no repair follows."),
        (["disk", "nvme-timeout"], f"{Reason.NVME_TIMEOUT} is recorded, and no repair follows."),
        (["lockup"], f"{Reason.TASK_HUNG} is recorded, and no repair follows."),
        (["lockup", "soft-lockup"], f"{Reason.SOFT_LOCKUP} is recorded, and no repair follows."),
        (["lockup", "rcu-stall"], f"{Reason.RCU_STALL} is recorded, and no repair follows."),
    ],
)
def test_each_family_of_faults_has_its_effect(runs, powered, arguments, expected) -> None:
    said = runs.call("inject", *arguments, "--node", "1", "-o", "json")

    assert said.json["expected"].startswith(expected)
    records = powered.directory.kmsg.read_text(encoding="utf-8").splitlines()
    syslog = powered.directory.messages.read_text(encoding="utf-8").splitlines()
    both = [line for pair in zip(records, syslog, strict=True) for line in pair]
    assert said.json["kernel"] == both
    assert len({record.split(",")[1] for record in records}) == len(records)


@pytest.mark.parametrize(
    "arguments", [["disk", "on-fire"], ["neuron", "XID"], ["sxid", "79"], ["sxid", "100000"]]
)
def test_an_unknown_kind_is_refused(runs, powered, arguments) -> None:
    said = runs.call("inject", *arguments, "--node", "1")

    assert said.code == ExitCode.BAD_INPUT
    assert not powered.directory.messages.exists() or not powered.directory.messages.read_text()


def test_the_lines_of_a_switch_are_the_drivers(runs, powered) -> None:
    runs.call("inject", "sxid", "20034", "--node", "1")

    texts = [
        line.partition(" kernel: ")[2]
        for line in powered.directory.messages.read_text(encoding="utf-8").splitlines()
    ]
    start = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, "
    assert texts[:2] == [
        f"{start}Fatal, Link 30 LTSSM Fault Up (First)",
        f"{start}Severity 1 Engine instance 30 Sub-engine instance 00",
    ]
    assert re.fullmatch(
        re.escape(f"{start}Data {{") + r"(0x[0-9a-f]{8}, ){7}0x[0-9a-f]{8}\}", texts[2]
    )
    assert len(texts) == 3


# XID


def test_xid_74_is_the_line_of_hyperpods_public_test(runs, powered) -> None:
    said = runs.call("inject", "xid", "74", "--node", node(1))

    text = (
        "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error "
        "detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    )
    syslog = powered.directory.messages.read_text(encoding="utf-8")
    assert re.fullmatch(
        rf"[A-Z][a-z]{{2}} [ 1-3]\d \d\d:\d\d:\d\d {node(1)} kernel: {re.escape(text)}\n", syslog
    )
    record = powered.directory.kmsg.read_text(encoding="utf-8")
    assert re.fullmatch(rf"4,0,\d+,-;{re.escape(text)}\n", record)
    assert said.code == ExitCode.OK
    assert "the node is replaced" in said.out
    assert "Job train is stopped and resumes" in said.out


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("73", f"the node is rebooted ({Reason.XID_REBOOT})."),
        ("74", f"the node is replaced ({Reason.XID_REPLACE})."),
        ("31", f"{Reason.XID_USER_APP} is recorded, and no repair follows."),
        ("94", f"the node stays ({Reason.XID_RESTART_APP})."),
        ("63", f"the node is rebooted once no job runs on it ({Reason.XID_REBOOT})."),
        ("154", f"the node is rebooted once no job runs on it ({Reason.XID_RECOVERY_ACTION})."),
        ("9999", f"{Reason.XID_UNKNOWN} is recorded, and no repair follows."),
        ("1234567", "the driver's message is not recognized."),
    ],
)
def test_what_to_expect_is_what_the_detector_says(runs, powered, code, expected) -> None:
    said = runs.call("inject", "xid", code, "--node", "1", "--dry-run", "-o", "json")

    assert said.json["expected"].startswith(expected)


def test_a_reboot_that_was_in_vain_is_answered_with_a_replacement(runs, powered, tmp_path) -> None:
    now = datetime.now(UTC)
    past = PastFault(opened_at=now, closed_at=now, reason=Reason.XID_REBOOT, remedy=Remedy.REBOOT)
    record = powered.store.nodes()[node(1)][2]
    powered.store.put_node(node(1), replace(record, history=(past,)))

    config = tmp_path / "config.toml"
    config.write_text('[nodes]\nreboot_window = "0s"\n', encoding="utf-8")
    xid = ["inject", "xid", "73", "--node", "1", "--dry-run"]

    assert "the node is replaced" in runs.call(*xid).out
    assert "the node is rebooted" in runs.call(*xid, "--config", str(config)).out


@pytest.fixture
def nvidia(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(
        '[machines]\nxid_profile = "nvidia"\n[nodes]\nheartbeat_timeout = "47s"\n', encoding="utf-8"
    )
    return path


def test_what_to_expect_follows_the_configuration_that_is_given(runs, powered, nvidia) -> None:
    xid = ["inject", "xid", "79", "--node", "1", "--dry-run"]

    by_default = runs.call(*xid)
    configured = runs.call(*xid, "--config", str(nvidia))

    assert "Expected with the default profile, hyperpod: the node is replaced" in by_default.out
    assert "\nExpected: the node is rebooted" in configured.out
    assert runs.call(*xid, "--config", str(nvidia), "-o", "json").json["profile"] == "nvidia"


def test_without_node_recovery_no_repair_is_expected(runs, powered, tmp_path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[nodes]\nnode_recovery = "None"\n', encoding="utf-8")
    at = ["--node", "1", "--dry-run", "--config", str(config)]

    for fault in (["xid", "79"], ["power-off"], ["hang"]):
        assert "quarantined only, because" in runs.call("inject", *fault, *at).out


def test_how_long_a_hang_lasts_follows_the_configuration(runs, powered, nvidia) -> None:
    said = runs.call("inject", "hang", "--node", "1", "--dry-run", "--config", str(nvidia))

    assert "after 47s without a heartbeat" in said.out


def test_a_configuration_that_cannot_be_read_breaks_nothing(runs, powered, tmp_path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[machines]\nxid_profile = "azure"\n', encoding="utf-8")

    said = runs.call("inject", "xid", "74", "--node", "1", "--config", str(path))

    assert said.code == ExitCode.BAD_INPUT
    assert "azure" in said.err
    assert powered.directory.kmsg.read_bytes() == b""


# DCGM

DCGM = {
    ("memory-errors",): "-f 319 -v 4",
    ("row-remap-failed",): "-f 395 -v 1",
    ("row-remap-pending",): "-f 396 -v 1",
    ("xid", "79"): "-f 230 -v 79",
}


@pytest.mark.parametrize("arguments", DCGM, ids=" ".join)
def test_a_dry_run_prints_what_dcgm_would_be_asked(runs, arguments) -> None:
    said = runs.call("inject", "dcgm", *arguments, "--dry-run", "-o", "json")

    assert said.code == ExitCode.OK
    assert said.json["command"] == f"dcgmi test --inject --gpuid 0 {DCGM[arguments]}"
    assert said.json["answer"] == ""


@pytest.fixture
def dcgmi(tmp_path, monkeypatch):
    """A dcgmi that notes how it is called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "dcgmi"
    path.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        'if [ "$4" = 7 ]; then echo "no such GPU" >&2; exit 253; fi\n'
        "echo Successfully injected field info.\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "calls"


def test_dcgm_is_called_word_for_word_and_its_answer_shown(runs, dcgmi) -> None:
    said = runs.call("inject", "dcgm", "memory-errors")

    assert dcgmi.read_text(encoding="utf-8") == "test --inject --gpuid 0 -f 319 -v 4\n"
    assert "Ran: dcgmi test --inject --gpuid 0 -f 319 -v 4" in said.out
    assert "Successfully injected" in said.out


def test_a_dry_run_does_not_call_dcgm(runs, dcgmi) -> None:
    runs.call("inject", "dcgm", "memory-errors", "--dry-run")

    assert not dcgmi.exists()


def test_a_dcgm_that_refuses_is_quoted(runs, dcgmi) -> None:
    said = runs.call("inject", "dcgm", "xid", "79", "--gpu", "7")

    assert said.code == ExitCode.FAILED
    assert "exited with 253: no such GPU" in said.err


def test_without_dcgm_it_is_reported_what_to_do(runs, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    said = runs.call("inject", "dcgm", "memory-errors")

    assert said.code == ExitCode.BAD_INPUT
    assert "install DCGM" in said.err


@pytest.mark.parametrize("arguments", [["xid"], ["memory-errors", "79"], ["fan"], ["xid", "0"]])
def test_only_an_xid_has_a_code(runs, arguments) -> None:
    assert runs.call("inject", "dcgm", *arguments, "--dry-run").code == ExitCode.BAD_INPUT


# The drills of public guides


@pytest.mark.parametrize(
    ("line", "reason", "remedy"),
    [
        (  # Amazon SageMaker HyperPod: appended to /var/log/messages, the day with its zero
            "Nov 08 10:00:00 ip-10-1-1-1 kernel: NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, "
            "name=<unknown>, NVLink: fatal error detected on link 6"
            "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            Reason.XID_REPLACE, Remedy.REPLACE,
        ),
        (
            "Nov 08 10:00:00 ip-10-1-1-1 kernel: NVRM: Xid (PCI:0000:b9:00): 73, pid=<unknown>, "
            "name=<unknown>, NVLink: fatal error detected on link 6"
            "(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            Reason.XID_REBOOT, Remedy.REBOOT,
        ),
        (  # AWS Neuron: written to /dev/kmsg by a user, facility 1
            "12,1,2,-;test NEURON_HW_ERR=DMA_ERROR test", Reason.NEURON_DMA, Remedy.REPLACE,
        ),
        (
            "12,1,2,-;kernel: NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR affecting neuron devices",
            Reason.NEURON_SRAM, Remedy.REPLACE,
        ),
    ],
)  # fmt: skip
def test_the_drills_of_public_guides_work_word_for_word(line, reason, remedy) -> None:
    now = datetime.now(UTC)
    message = parsed(line, now).message
    readings = Readings(kernel_log=(LogLine(message=message, observed_at=now),))

    found = [one for watcher in detectors(Profile.HYPERPOD) for one in watcher.detect(readings)]

    assert [(one.reason, one.remedy) for one in found] == [(reason, remedy)]


def test_device_and_message_can_be_chosen(runs, powered) -> None:
    device = "0000:18:00 GPU-I:05"
    runs.call("inject", "xid", "13", "--node", "1", "--device", device, "--message", "Ouch")

    assert "NVRM: Xid (PCI:0000:18:00 GPU-I:05): 13, pid=<unknown>, name=<unknown>, Ouch\n" in (
        powered.directory.messages.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--device", "b9:00"],
        ["--device", "0000:b9:00): 79, ("],
        ["--message", "two\nlines"],
        ["--message", "\x1b[31m"],
    ],
)
def test_what_the_driver_cannot_print_is_refused(runs, powered, options) -> None:
    said = runs.call("inject", "xid", "74", "--node", "1", *options)

    assert said.code == ExitCode.BAD_INPUT
    assert options[0] in said.err
    assert powered.directory.kmsg.read_bytes() == b""


@pytest.mark.parametrize("code", ["0", "-1", "seventy"])
def test_a_code_is_a_positive_number(runs, code) -> None:
    assert runs.call("inject", "xid", "--node", "0", "--", code).code == ExitCode.BAD_INPUT


def test_a_dry_run_shows_the_lines_and_writes_none(runs, powered) -> None:
    said = runs.call("inject", "xid", "74", "--node", "1", "--dry-run")

    assert said.out.count("NVRM: Xid (PCI:0000:b9:00): 74") == 2
    assert powered.directory.kmsg.read_bytes() == b""
    assert powered.directory.messages.read_bytes() == b""


def test_records_are_numbered_on_in_the_order_of_the_log(runs, powered) -> None:
    powered.directory.kmsg.write_text(
        "6,41,12,-;a line with 9,9,9,-;in it\n SUBSYSTEM=pci\n", encoding="utf-8"
    )

    for _ in range(2):
        runs.call("inject", "xid", "74", "--node", "1")

    numbers = re.findall(
        r"^\d+,(\d+),", powered.directory.kmsg.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert numbers == ["41", "42", "43"]


def test_a_record_has_the_time_since_boot_in_microseconds(runs, powered) -> None:
    before = time.monotonic_ns() // 1000
    runs.call("inject", "xid", "74", "--node", "1")

    record = powered.directory.kmsg.read_text(encoding="utf-8")
    assert before <= int(record.split(",")[2]) <= time.monotonic_ns() // 1000


@given(st.sampled_from(sorted(faults.XID_TEXTS)), st.datetimes(timezones=st.just(UTC)))
def test_both_forms_of_a_line_are_read_back_as_it_was(tmp_path_factory, code, now) -> None:
    directory = NodeDir(tmp_path_factory.getbasetemp() / node(1))
    directory.create()
    directory.kmsg.touch()
    text = faults.xid_line(code, "0000:b9:00", faults.XID_TEXTS[code])

    line = faults.kernel_line(directory, text, now=now, since_boot=timedelta(seconds=1))

    for form in (line.record, line.syslog):
        assert parsed(form, now).message == text
    assert line.syslog.index(node(1)) == len("Jan  1 00:00:00 ")


def test_the_gpu_itself_names_no_process() -> None:
    assert faults.xid_line(154, "0000:b9:00", "GPU recovery action changed") == (
        "NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed"
    )


def test_the_kernel_of_a_machine_without_power_prints_nothing(powered) -> None:
    powered.cut()

    with pytest.raises(BackendError, match="is not powered on"):
        faults.write_kernel_line(
            powered.directory, "text", now=datetime.now(UTC), since_boot=timedelta(0)
        )
    assert powered.directory.kmsg.read_bytes() == b""


# Signals


def test_kill_rank_kills_the_main_process_of_the_rank_alone(runs, powered) -> None:
    said = runs.call("inject", "kill-rank", "--node", "1", "-o", "json")

    assert said.json["processes"] == [powered.pids["task"]]
    assert (said.json["node"], said.json["rank"], said.json["signal"]) == (node(1), 1, "SIGKILL")
    wait_until(lambda: state(powered.pids["task"]) in ("", "Z"))
    wait_until(lambda: state(powered.child) == "")  # the node buries what the rank left behind
    assert goes_on(powered.pids["agent"])
    assert goes_on(powered.pids["node"])


def test_power_off_ends_everything_on_the_machine(runs, powered) -> None:
    said = runs.call("inject", "power-off", "--node", node(1), "-o", "json")

    assert sorted(said.json["processes"]) == sorted(powered.everything)
    wait_until(lambda: all(state(pid) in ("", "Z") for pid in powered.everything))
    assert powered.machine.process.wait() == -signal.SIGKILL


def test_hang_stops_everything_on_the_machine(runs, powered) -> None:
    said = runs.call("inject", "hang", "--node", machine(1))

    assert f"SIGSTOP went to {len(powered.everything)} processes" in said.out
    wait_until(lambda: {state(pid) for pid in powered.everything} == {"T"})


def test_hang_of_the_rank_leaves_the_machine_well(runs, powered) -> None:
    said = runs.call("inject", "hang", "--rank-only", "--node", "1")

    assert "--hang-timeout" in said.out
    assert "resumes" not in said.out
    wait_until(lambda: {state(powered.pids["task"]), state(powered.child)} == {"T"})
    assert goes_on(powered.pids["agent"])
    assert goes_on(powered.pids["node"])


@pytest.mark.parametrize(
    ("fault", "hits"),
    [
        (["kill-rank"], lambda powered: [powered.pids["task"]]),
        (["power-off"], lambda powered: powered.everything),
        (["hang"], lambda powered: powered.everything),
        (["hang", "--rank-only"], lambda powered: [powered.pids["task"], powered.child]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_dry_run_names_the_processes_and_spares_them(runs, powered, fault, hits) -> None:
    said = runs.call("inject", *fault, "--node", "1", "--dry-run", "-o", "json")

    assert said.json["dry_run"]
    assert sorted(said.json["processes"]) == sorted(hits(powered))
    assert all(goes_on(pid) for pid in powered.everything)


def test_a_process_that_was_given_an_old_number_is_never_hit(runs, powered) -> None:
    noted = json.loads(powered.directory.processes.read_text(encoding="utf-8"))
    other = powered.pids["agent"]
    noted["task"] = [other, start_time(other) - 1]
    powered.directory.processes.write_text(json.dumps(noted), encoding="utf-8")

    said = runs.call("inject", "kill-rank", "--node", "1")

    assert goes_on(other)
    assert said.code == ExitCode.FAILED
    assert f"no rank runs on {node(1)}" in said.err


@pytest.mark.parametrize(
    "fault", [["xid", "74"], ["kill-rank"], ["power-off"], ["hang"]], ids=" ".join
)
def test_nothing_can_be_broken_without_power(runs, powered, fault) -> None:
    powered.cut()

    for dry in ([], ["--dry-run"]):
        said = runs.call("inject", *fault, "--node", "1", *dry)

        assert said.code == ExitCode.FAILED
        assert f"{node(1)} is not powered on" in said.err


@pytest.mark.parametrize("fault", [["kill-rank"], ["hang", "--rank-only"]], ids=" ".join)
def test_a_node_without_a_rank_has_none_to_break(runs, powered, fault) -> None:
    record = powered.store.jobs()["train"][1]
    powered.store.put_job("train", replace(record, phase=JobPhase.WAITING))

    said = runs.call("inject", *fault, "--node", node(1))

    assert said.code == ExitCode.FAILED
    assert f"no rank is running on {node(1)}" in said.err
    assert is_alive(powered.pids["task"], start_time(powered.pids["task"]))


def test_a_run_that_has_ended_cannot_be_broken(runs) -> None:
    runs.add("over", nodes=(1,), is_active=False)

    with_run = runs.call("inject", "xid", "74", "--node", node(1), "--run", "over")
    without_run = runs.call("inject", "xid", "74", "--node", node(1))

    assert (with_run.code, without_run.code) == (ExitCode.FAILED, ExitCode.FAILED)
    assert "run over is not active" in with_run.err
    assert "no run is active" in without_run.err


def test_which_node_must_be_given(runs) -> None:
    runs.add("train")

    assert "--node" in runs.call("inject", "xid", "74").err
    assert (
        "rank 7 is not running on any node" in runs.call("inject", "xid", "74", "--node", "7").err
    )
