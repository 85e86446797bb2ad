import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.detectors import chosen_detectors
from holdfast.apps.agent.main import main
from holdfast.apps.listen_address import ListenAddress
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors, required_samples
from holdfast.kit.config import load_config, parse_table
from holdfast.model.errors import ConfigError
from holdfast.model.names import Reason
from holdfast.model.report import NodeReport

TIMEOUT_S = 90.0  # far more than anything here takes, for machines that are busy
XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=<unknown>, name=<unknown>, text"


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Configured:
    """An agent with a configuration file."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.kmsg = directory / "kmsg"
        self.file = directory / "agent.toml"
        self.reports = directory / "run"
        self.log = directory / "agent.log"
        self.errors = directory / "stderr"
        self.kmsg.touch()
        (directory / "boot_id").write_text("b1\n", encoding="utf-8")
        self.processes: list[subprocess.Popen[bytes]] = []

    def configure(self, more: str = "", *, top: str = "") -> None:
        self.file.write_text(
            f'node = "n1"\nkmsg = "{self.kmsg}"\nlog_files = []\n'
            f'boot_id_file = "{self.kmsg.parent / "boot_id"}"\n'
            f'report_dir = "{self.reports}"\nheartbeat = "50ms"\n'
            f'root = "{self.root}"\ncommand_path = "{self.root}"\n{top}\n{more}\n'
            "[detectors.clock-state]\nenabled = false\n",  # there is one clock for all roots
            encoding="utf-8",
        )

    def start(self, *extra: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        before = self.heartbeat()
        argv = [
            sys.executable,
            "-m",
            "holdfast.apps.agent.main",
            "--config",
            str(self.file),
            *extra,
        ]
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(argv, stderr=errors, stdout=subprocess.PIPE, env=env)
        self.processes.append(process)
        eventually(lambda: self.heartbeat() not in ("", before) or process.poll() is not None)
        return process

    def reload(self, process: subprocess.Popen[bytes]) -> None:
        said = self.said()
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "configuration" in self.said().removeprefix(said))

    def kernel_says(self, *codes: int) -> None:
        with self.kmsg.open("a", encoding="utf-8") as log:
            log.writelines(f"4,1,2,-;{XID.format(code)}\n" for code in codes)

    def report(self) -> NodeReport:
        report = ReportFiles(self.reports).last()
        assert report is not None
        return report

    def codes(self) -> list[int | None]:
        return [fault.code for fault in self.report().faults]

    def noticed(self) -> list[int | None]:
        return [notice.code for notice in self.report().notices]

    def heartbeat(self) -> str:
        path = self.reports / "heartbeat"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def reported(self) -> list[tuple[str, str]]:
        """What the log says of faults and conditions, in short."""
        return [
            ("fault", line["Event detail"]["Action"])
            if "Event detail" in line
            else (line["condition type: "], line["with condition details "]["status"])
            for line in self.lines()
        ]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Configured]:
    agent = Configured(tmp_path)
    agent.configure()
    yield agent
    for process in agent.processes:
        process.kill()
        process.communicate()


def problems(table: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_table(table, AgentConfig)
    return caught.value.problems


def test_an_empty_file_is_the_default_agent() -> None:
    assert parse_table({}, AgentConfig) == AgentConfig()


def test_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        'node = "n"\nlog_files = ["/a", "/b"]\nprofile = "nvidia"\nshadow = true\n'
        "[detectors.gpu-xid]\nenabled = false\nshadow = true\n"
        '[xid]\n74 = "reboot"\n[log]\nstdout = true\nfile = "/c"\n'
        '[telemetry]\nlisten = "127.0.0.1:20257"\n',
        encoding="utf-8",
    )

    config = load_config(path, AgentConfig)

    assert config.log_files == (Path("/a"), Path("/b"))
    assert (config.profile, config.shadow) == (Profile.NVIDIA, True)
    assert (config.detectors["gpu-xid"].enabled, config.detectors["gpu-xid"].shadow) == (
        False,
        True,
    )
    assert config.xid == {"74": "reboot"}
    assert (config.log.stdout, config.log.file) == (True, Path("/c"))
    assert config.telemetry.listen == ListenAddress("127.0.0.1", 20257)


def test_an_unknown_detector_or_key_is_answered_with_the_known_ones() -> None:
    names = ", ".join(sorted(one.name for one in detectors(Profile.HYPERPOD)))

    assert problems({"detectors": {"gpu": {}, "a": {}}}) == (
        f"detectors: unknown a, gpu; expected one of {names}",
    )
    assert problems({"detectors": {"gpu-xid": {"on": 1}}}) == (
        "detectors.gpu-xid.on: unknown key; expected one of enabled, every, shadow, "
        "needs_corroboration",
    )
    assert problems({"reprot_dir": "/x"}) == ("reprot_dir: unknown key (did you mean report_dir?)",)


def test_values_that_cannot_be_are_named() -> None:
    assert problems({"heartbeat": "0s"}) == ("heartbeat must be longer than 0s, got 0s",)
    assert problems({"xid": {"79": "explode"}})[0].startswith("xid.79: expected one of ")
    assert problems({"xid": {"7a": "reboot"}}) == (
        "xid: expected codes such as 74 as keys, got 7a",
    )
    assert problems({"telemetry": {"listen": "x"}}) == (
        "telemetry.listen: 'x' is neither an address such as 127.0.0.1:20257 nor a port from 0 "
        "to 65535",
    )


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
        (":0", "", 0),
        ("20257", "127.0.0.1", 20257),
        (20257, "127.0.0.1", 20257),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_port_of_the_loopback(
    value: object, host: str, port: int
) -> None:
    assert ListenAddress.parse(value) == ListenAddress(host, port)


@pytest.mark.parametrize("value", ["", ":", "a:", "a:65536", "a:-1", "a:1x", True, "²", 1.5, "::1"])
def test_what_is_no_address_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="neither an address such as"):
        ListenAddress.parse(value)


def test_an_address_is_written_as_it_is_in_a_url() -> None:
    assert str(ListenAddress.parse("[::1]:80")) == "[::1]:80"
    assert str(ListenAddress.parse(80)) == "127.0.0.1:80"


def test_the_options_win_over_the_file(agent: Configured) -> None:
    agent.configure(top='profile = "hyperpod"')
    agent.kernel_says(79)

    agent.start("--xid-profile", "nvidia", "--node", "other")

    assert agent.report().node == "other"
    assert [fault.remedy for fault in agent.report().faults] == ["reboot"]


def test_an_xid_has_the_remedy_of_the_file(agent: Configured) -> None:
    agent.configure('[xid]\n74 = "reboot"\n79 = "none"')
    agent.kernel_says(74, 79)

    agent.start()

    assert [(fault.code, fault.remedy) for fault in agent.report().faults] == [(74, "reboot")]
    assert agent.noticed() == [79]


def test_a_detector_that_is_off_finds_nothing(agent: Configured) -> None:
    agent.configure("[detectors.gpu-xid]\nenabled = false")
    agent.kernel_says(74)

    agent.start()

    assert agent.codes() == agent.noticed() == []


@pytest.mark.parametrize("how", ["detector", "file", "option"])
def test_in_shadow_mode_a_fault_is_only_a_notice(agent: Configured, how: str) -> None:
    if how == "detector":
        agent.configure("[detectors.gpu-xid]\nshadow = true")
    elif how == "file":
        agent.configure(top="shadow = true")
    agent.kernel_says(74)

    agent.start(*(["--shadow"] if how == "option" else []))

    assert agent.codes() == []
    (notice,) = agent.report().notices
    assert (notice.code, notice.remedy) == (74, "none")
    assert notice.message.startswith("shadow mode: would request replace: NVRM: Xid")


def test_a_change_of_the_file_counts_after_sighup_and_loses_nothing(agent: Configured) -> None:
    process = agent.start()
    agent.kernel_says(74)
    eventually(lambda: agent.codes() == [74])

    agent.configure(top='profile = "nvidia"')
    agent.reload(process)
    agent.kernel_says(79)

    eventually(lambda: agent.codes() == [74, 79])
    assert [fault.count for fault in agent.report().faults] == [1, 1]
    assert agent.report().faults[1].remedy == "reboot"
    assert process.poll() is None


def test_shadow_mode_that_is_switched_on_ends_the_faults(agent: Configured) -> None:
    agent.configure(f'[log]\nfile = "{agent.log}"')
    process = agent.start()
    agent.kernel_says(74)
    eventually(lambda: agent.codes() == [74])

    agent.configure(f'[log]\nfile = "{agent.log}"', top="shadow = true")
    agent.reload(process)

    eventually(lambda: agent.codes() == [])
    eventually(lambda: agent.reported()[-1] == ("NvidiaErrorTerminate", "False"))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("profile = ", "not TOML"),
        ('profile = "azure"', 'profile: expected one of "hyperpod"'),
        ('[log]\nfile = "/none/x"', "cannot write the log to /none/x: No such file"),
    ],
)
def test_a_new_file_that_is_broken_leaves_the_old_one_in_force(
    agent: Configured, broken: str, message: str
) -> None:
    agent.configure(top='profile = "nvidia"')
    process = agent.start()
    agent.configure(broken)
    agent.reload(process)

    eventually(lambda: "the previous configuration stays in effect" in agent.said())
    assert message in agent.said()
    agent.kernel_says(79)
    eventually(lambda: agent.codes() == [79])
    assert agent.report().faults[0].remedy == "reboot"


def test_changes_are_logged_once_over_restarts_and_kills(agent: Configured) -> None:
    agent.configure(f'[log]\nfile = "{agent.log}"')
    process = agent.start()
    agent.kernel_says(74, 13)
    eventually(lambda: agent.codes() == [74])
    first = agent.reported()
    process.kill()
    process.wait()

    process = agent.start()
    agent.reload(process)
    agent.kernel_says(74)
    eventually(lambda: agent.report().faults[0].count == 2)

    assert sorted(first[-3:]) == [
        ("NvidiaErrorTerminate", "True"),
        ("fault", "none"),
        ("fault", "replace"),
    ]
    assert agent.reported() == first


def test_the_conditions_keep_their_time_over_restarts_and_clear_with_a_reboot(
    agent: Configured,
) -> None:
    agent.configure(f'[log]\nfile = "{agent.log}"')
    agent.kernel_says(74)
    process = agent.start()
    held = agent.report().conditions
    process.kill()
    process.wait()
    agent.start().kill()
    agent.processes[-1].wait()
    assert agent.report().conditions == held

    (agent.kmsg.parent / "boot_id").write_text("b2\n", encoding="utf-8")
    agent.kmsg.write_text("", encoding="utf-8")
    agent.start()

    assert all(condition.status == "False" for condition in agent.report().conditions)
    assert agent.reported()[-1] == ("NvidiaErrorTerminate", "False")


def test_the_log_is_made_anew_after_rotation(agent: Configured) -> None:
    agent.start("--json-log", str(agent.log))
    agent.log.rename(agent.log.with_suffix(".1"))

    agent.kernel_says(74)

    eventually(lambda: agent.codes() == [74])
    assert agent.reported() == [("fault", "replace"), ("NvidiaErrorTerminate", "True")]


def test_the_log_goes_to_standard_output_if_asked_to(agent: Configured) -> None:
    agent.kernel_says(74)
    process = agent.start("--json-log", "-")
    process.terminate()
    output, _ = process.communicate(timeout=TIMEOUT_S)

    lines = [json.loads(line) for line in output.splitlines()]
    assert all(line["HealthMonitoringAgentDetectionEvent"] == "HealthEvent" for line in lines)
    assert "Event detail" in lines[0]


def url(agent: Configured) -> str:
    found = re.search(r"serving /metrics and /healthz on (http://\S+)", agent.said())
    assert found is not None
    return found[1]


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:  # noqa: S310
        text: str = answer.read().decode()
    return text


def test_problems_are_counted_from_0_for_what_the_detectors_may_say_and_nothing_else(
    agent: Configured,
) -> None:
    agent.configure("[detectors.host-lockup]\nenabled = false")
    agent.start("--metrics", "0", "--logs-only")
    eventually(lambda: "serving" in agent.said())

    text = get(f"{url(agent)}/metrics")

    counted = set(re.findall(r'^problem_counter{reason="(\w+)"} 0$', text, re.MULTILINE))
    assert {"NvidiaGpuXidErrorPendingReplacement", "OOMKilling", "DetectorFailed"} <= counted
    assert counted.isdisjoint({"KernelPanic", "DiskFull", "JobHung", "NodeLost"})


def test_metrics_are_served_on_the_loopback(agent: Configured) -> None:
    agent.configure('[identity]\ncluster = "ml"')
    agent.start("--metrics", "0")
    agent.kernel_says(74)
    eventually(lambda: agent.codes() == [74])

    text = get(f"{url(agent)}/metrics")

    assert 'cluster="ml"' in re.findall(r"^holdfast_agent_machine_info{(.*)} 1$", text, re.M)[0]
    assert url(agent).startswith("http://127.0.0.1:")
    assert 'problem_counter{reason="NvidiaGpuXidErrorPendingReplacement"} 1\n' in text
    assert (
        'problem_gauge{reason="NvidiaGpuXidErrorPendingReplacement",type="NvidiaErrorTerminate"} 1'
    ) in text
    beats = re.search(r"^holdfast_agent_heartbeats_total (\d+)$", text, re.MULTILINE)
    assert beats is not None
    assert int(beats[1]) > 0
    assert "holdfast_agent_log_lines_total 1\n" in text
    assert get(f"{url(agent)}/healthz") == "ok\n"


def test_a_port_that_is_taken_is_bad_input(agent: Configured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = agent.start("--metrics", str(port))

    assert process.wait(TIMEOUT_S) == 2
    assert f"cannot serve metrics on 127.0.0.1:{port}: Address already in use" in agent.said()


def test_metrics_stay_on_their_port_through_sighup(agent: Configured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agent.configure(f"[telemetry]\nlisten = {port}")
    process = agent.start()
    get(f"http://127.0.0.1:{port}/metrics")

    process.send_signal(signal.SIGHUP)
    eventually(lambda: agent.said().count("serving /metrics") == 2)

    assert "build_info" in get(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize(("codes", "exit_code"), [((), 0), ((13,), 0), ((74, 13), 1)])
def test_once_prints_the_report_and_answers_with_its_exit_code(
    agent: Configured, capsys: pytest.CaptureFixture[str], codes: tuple[int, ...], exit_code: int
) -> None:
    agent.kernel_says(*codes)

    assert main(["--config", str(agent.file), "--once", "--output", "json"]) == exit_code

    report = json.loads(capsys.readouterr().out)
    assert report["node"] == "n1"
    assert [fault["code"] for fault in report["faults"]] == [code for code in codes if code == 74]
    assert [notice["code"] for notice in report["notices"]] == [c for c in codes if c == 13]
    assert {condition["status"] for condition in report["conditions"]} >= {"False"}


def test_once_reads_all_again_and_leaves_an_agent_at_work_alone(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.kernel_says(74)
    agent.start()
    kept = agent.reports / "state" / "cursors.json"
    eventually(lambda: kept.exists() and json.loads(kept.read_text())["samples"])
    cursors = kept.read_text(encoding="utf-8")

    assert [main(["--config", str(agent.file), "--once"]) for _ in range(2)] == [1, 1]

    assert "replace: NvidiaGpuXidErrorPendingReplacement since" in capsys.readouterr().out
    assert kept.read_text(encoding="utf-8") == cursors
    agent.kernel_says(79)
    eventually(lambda: agent.codes() == [74, 79])


def test_once_leaves_no_trace_and_needs_no_place_to_write_to(agent: Configured) -> None:
    agent.kernel_says(74)
    boot_id = agent.kmsg.parent / "boot_id"

    assert main(["--config", str(agent.file), "--once"]) == 1

    assert not agent.reports.exists()
    assert boot_id.read_text(encoding="utf-8") == "b1\n"


def test_a_signal_to_end_is_heard_beside_one_to_reload(agent: Configured) -> None:
    process = agent.start()
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)

    assert process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("setting", ["enabled = false", "shadow = true"])
def test_faults_of_a_detector_that_may_no_longer_find_any_end_and_others_stay(
    agent: Configured, setting: str
) -> None:
    agent.kernel_says(74)
    process = agent.start()
    with agent.kmsg.open("a", encoding="utf-8") as log:
        log.write("4,1,2,-;XFS (nvme0n1): Corruption of in-memory data detected. Shutting down\n")
        log.write("4,1,2,-;EDAC MC0: 1 UE memory read error on CPU_SrcID#0 (channel:0 slot:0)\n")
    eventually(lambda: len(agent.report().faults) > 1)
    others = [fault for fault in agent.report().faults if fault.code != 74]

    agent.configure(f"[detectors.gpu-xid]\n{setting}")
    agent.reload(process)

    eventually(lambda: 74 not in agent.codes())
    assert [fault.key for fault in agent.report().faults] == [fault.key for fault in others]


def test_once_says_what_it_cannot_read(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.kmsg.unlink()

    assert main(["--config", str(agent.file), "--once"]) == 2
    assert f"cannot use {agent.kmsg}: No such file or directory" in capsys.readouterr().err


def test_once_without_the_kernels_log_is_no_word_of_health(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.configure(top='source = "journald"')

    assert main(["--config", str(agent.file), "--once"]) == 2
    assert "holdfast agent: cannot evaluate logs: " in capsys.readouterr().err


def test_once_says_that_it_leaves_syslog_files_alone(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    log = agent.kmsg.with_name("messages")
    log.write_text(f"Nov 20 12:00:00 n1 kernel: {XID.format(74)}\n", encoding="utf-8")
    agent.configure(top='source = "files"')
    text = agent.file.read_text(encoding="utf-8").replace(
        "log_files = []", f'log_files = ["{log}"]'
    )
    agent.file.write_text(text, encoding="utf-8")

    assert main(["--config", str(agent.file), "--once"]) == 0
    assert "holdfast scan kernel-log" in capsys.readouterr().err

    agent.configure()
    assert main(["--config", str(agent.file), "--once", "--log-file", str(log)]) == 0
    assert "holdfast scan kernel-log" in capsys.readouterr().err


def test_once_reports_a_source_that_cannot_be_read_and_does_not_fail_for_it(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    write(agent.root, "proc/meminfo", "nothing\n")

    assert main(["--config", str(agent.file), "--once"]) == 0
    output = capsys.readouterr()
    assert output.err == "holdfast agent: cannot evaluate memory: meminfo has no MemAvailable\n"
    assert "no fault" in output.out


def test_a_healthy_node_is_reported_in_words(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(agent.file), "--once"]) == 0
    assert capsys.readouterr().out == "n1 has no fault that requires a remedy.\n"


def test_output_is_for_once(agent: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--config", str(agent.file), "--output", "json"])

    assert end.value.code == 2
    assert "--output requires --once" in capsys.readouterr().err


def test_a_file_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: cannot be read: No such file" in capsys.readouterr().err


def test_what_disturbs_jobs_runs_where_it_is_asked_for_and_as_often_as_it_is() -> None:
    def chosen(**settings: object) -> dict[str, timedelta]:
        config = parse_table({"detectors": {"gpu-dcgm-diag": settings}}, AgentConfig)
        return required_samples(chosen_detectors(config))

    assert "dcgm-diag" not in chosen()
    assert "dcgm-diag" not in chosen(every="1h")
    assert chosen(enabled=True)["dcgm-diag"] == timedelta(hours=24)
    assert chosen(enabled=True, every="1h")["dcgm-diag"] == timedelta(hours=1)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"detectors": {"gpu-state": {"every": "0s"}}}, "every must be longer than 0s"),
        ({"source": "syslog"}, "source"),
        ({"source": "files"}, 'source = "files" needs log_files'),
        ({"source": "files", "log_files": []}, 'source = "files" needs log_files'),
    ],
)
def test_what_cannot_be_read_is_refused(table: dict[str, object], words: str) -> None:
    assert words in problems(table)[0]


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_an_agent_in_a_container_needs_nothing_but_the_root_of_its_machine(
    agent: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    write(agent.root, "dev/kmsg", f"4,1,2,-;{XID.format(74)}\n")
    write(agent.root, "proc/sys/kernel/random/boot_id", "b7\n")
    write(agent.root, "proc/meminfo", "MemAvailable: 1 kB\n")
    agent.file.write_text(
        f'root = "{agent.root}"\ncommand_path = "{agent.root}"\n', encoding="utf-8"
    )

    assert main(["--config", str(agent.file), "--once", "--output", "json"]) == 1

    report = json.loads(capsys.readouterr().out)
    assert report["boot_id"] == "b7"
    assert [fault["code"] for fault in report["faults"]] == [74]
    assert Reason.MEMORY_EXHAUSTED in [notice["reason"] for notice in report["notices"]]


def test_an_agent_that_reads_files_alone_needs_no_device(agent: Configured) -> None:
    messages = agent.root / "messages"
    messages.touch()
    agent.kmsg.unlink()
    agent.configure()
    text = agent.file.read_text(encoding="utf-8").replace(
        "log_files = []", f'source = "files"\nlog_files = ["{messages}"]'
    )
    agent.file.write_text(text, encoding="utf-8")
    agent.start()

    with messages.open("a", encoding="utf-8") as log:
        log.write(f"Nov 20 10:00:00 host kernel: {XID.format(74)}\n")

    eventually(lambda: [one.code for one in agent.report().suspects] == [74])
    assert agent.codes() == []


def test_an_agent_without_a_journalctl_lives_and_says_so(agent: Configured) -> None:
    agent.configure(top='source = "journald"')
    process = agent.start(env={**os.environ, "PATH": str(agent.root)})

    eventually(lambda: agent.report().notices)

    assert process.poll() is None
    [notice] = agent.report().notices
    assert (notice.reason, notice.device) == (Reason.SOURCE_FAILED, "logs")
    assert "journalctl" in notice.message
