import gzip
import json
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.apps.cli.scan.commands import BLOCK, PAGE, scan

HOLDFAST = [sys.executable, "-m", "holdfast"]

XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=<unknown>, name=<unknown>, NVLink: fatal error"
SYSLOG = "Nov 20 10:00:00 host kernel: "
NOISE = "Nov 20 10:00:00 host kernel: usb 1-1: new high-speed USB device number 2\n"

KEYS = ["file", "line_number", "family", "code", "device", "reason", "severity", "remedy"]


def scanned(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(scan, ["kernel-log", *map(str, arguments)], input=stdin)


def found(*arguments: object, stdin: bytes | None = None) -> list[dict[str, Any]]:
    result = scanned("--output", "json", *arguments, stdin=stdin)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "messages"
    path.write_text(
        f"{NOISE}{SYSLOG}{XID.format(74)}\n"
        f"Nov 20 10:00:01 host sshd[1]: {XID.format(79)}\n"
        f"{SYSLOG}{XID.format(73)}\n{SYSLOG}{XID.format(13)}\n",
        encoding="utf-8",
    )
    return path


def test_each_finding_is_one_json_object_with_these_keys(log: Path) -> None:
    first, second, third = found(log)

    assert first == {
        "file": str(log),
        "line_number": 2,
        "family": "xid",
        "code": 74,
        "device": "PCI:0000:b9:00",
        "reason": "NvidiaGpuXidErrorPendingReplacement",
        "severity": "fatal",
        "remedy": "replace",
    }
    assert list(first) == KEYS
    assert (second["line_number"], second["code"], second["remedy"]) == (4, 73, "reboot")
    assert (third["line_number"], third["code"], third["remedy"]) == (5, 13, "none")


def test_each_file_is_judged_on_its_own(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "kmsg"
    other.write_text(f" {XID.format(79)}\n", encoding="utf-8")  # no record came before it

    hits = found(log, other, log)

    assert [(hit["file"], hit["line_number"]) for hit in hits] == [
        *((str(log), number) for number in (2, 4, 5)),
        (str(other), 1),
        *((str(log), number) for number in (2, 4, 5)),
    ]


def test_raw_records_are_read(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    record = r"3,1,2,-;NVRM: The NVIDIA GPU 0000:18:00.0\x0aNVRM: (PCI ID: 10de:2901) installed"
    path.write_text(
        record + r" in this system has\x0aNVRM: fallen off the bus and is not responding."
        f"\n SUBSYSTEM=pci\n {XID.format(74)}\n4,2,3,-;{XID.format(95)}\n",
        encoding="utf-8",
    )

    assert [(hit["line_number"], hit["code"], hit["device"]) for hit in found(path)] == [
        (1, 79, "PCI:0000:18:00"),
        (4, 95, "PCI:0000:b9:00"),
    ]


def test_the_profile_decides(log: Path) -> None:
    hits = found("--profile", "nvidia", log)

    assert [hit["remedy"] for hit in hits] == ["reset-gpu", "none", "none"]


def test_standard_input_is_a_file(log: Path) -> None:
    hits = found("-", stdin=log.read_bytes())

    assert [hit["file"] for hit in hits] == ["-"] * 3


def test_a_table_is_for_people(log: Path) -> None:
    result = scanned(log)

    title, *rows = result.stdout.splitlines()
    assert title.split() == ["FILE", "LINE", "CODE", "DEVICE", "SEVERITY", "REMEDY", "MESSAGE"]
    assert len(rows) == 3
    assert rows[0].split()[:6] == [str(log), "2", "74", "PCI:0000:b9:00", "fatal", "replace"]
    assert rows[0].endswith(XID.format(74))
    assert rows[0].index("fatal") == rows[2].index("warning") == title.index("SEVERITY")
    assert result.exit_code == 0


def test_a_wide_table_says_more(log: Path) -> None:
    title, row, *_ = scanned("-o", "wide", log).stdout.splitlines()

    assert "TIME" in title
    assert "REASON" in title
    assert "11-20 10:00:00" in row
    assert "NVLink error" in row
    assert "NvidiaGpuXidErrorPendingReplacement" in row


def test_a_record_of_several_lines_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "dmesg"
    path.write_text(
        "[    1.000000] NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "               NVRM: (PCI ID: 10de:2901) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n",
        encoding="utf-8",
    )

    _, row = scanned(path).stdout.splitlines()

    assert "GPU 0000:18:00.0 NVRM: (PCI ID: 10de:2901) installed" in row


def test_many_findings_come_in_several_tables(tmp_path: Path) -> None:
    path = tmp_path / "storm"
    path.write_text(f"{XID.format(45)}\n" * (PAGE + 1), encoding="utf-8")

    lines = scanned(path).stdout.splitlines()

    assert len(lines) == PAGE + 1 + 2
    assert [number for number, line in enumerate(lines) if line.startswith("FILE")] == [0, PAGE + 1]


@pytest.mark.parametrize("output", ["table", "json"])
def test_if_nothing_is_found_that_is_reported(tmp_path: Path, output: str) -> None:
    path = tmp_path / "messages"
    path.write_text(NOISE, encoding="utf-8")

    result = scanned("--output", output, path, path)

    assert result.stdout == ""
    assert result.stderr == "No findings in the 2 files that were read.\n"
    assert result.exit_code == 0


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_file_that_is_no_kernel_log_is_named_and_does_not_pass_for_a_quiet_one(
    log: Path, tmp_path: Path, output: str
) -> None:
    packed = tmp_path / "messages.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))

    result = scanned("--output", output, packed, log)

    assert result.stderr == (
        f"holdfast: {packed}: no line is a kernel message; decompress it first if it is "
        "compressed\n"
    )
    assert result.exit_code == 0


@pytest.mark.parametrize("output", ["table", "json"])
def test_if_anything_is_found_in_any_file_nothing_more_is_reported(
    log: Path, tmp_path: Path, output: str
) -> None:
    quiet = tmp_path / "quiet"
    quiet.write_text(NOISE, encoding="utf-8")

    assert scanned("--output", output, log, quiet).stderr == ""
    assert scanned("--output", output, quiet, log).stderr == ""


def test_a_file_that_cannot_be_read_hides_no_other(log: Path, tmp_path: Path) -> None:
    result = scanned("-o", "json", tmp_path / "none", log, tmp_path)

    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == (
        f"holdfast: cannot read {tmp_path / 'none'}: No such file or directory\n"
        f"holdfast: cannot read {tmp_path}: Is a directory\n"
    )
    assert result.exit_code == 2


def test_nothing_is_claimed_of_files_that_were_not_read(tmp_path: Path) -> None:
    result = scanned(tmp_path / "none")

    assert "No findings in" not in result.stderr
    assert result.exit_code == 2


def test_one_unreadable_file_among_quiet_ones_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text(NOISE, encoding="utf-8")

    result = scanned(path, tmp_path / "none")

    assert "No findings in the one file that was read." in result.stderr
    assert result.exit_code == 2


def test_at_least_one_file_is_needed() -> None:
    result = scanned()

    assert result.exit_code == 2
    assert "Missing argument 'FILE...'" in result.stderr


def test_the_help_has_examples_and_exit_codes() -> None:
    text = scanned("--help").stdout

    assert "dmesg | holdfast scan kernel-log -" in text
    assert "Exits with 0" in text


def test_findings_on_both_sides_of_a_block_are_counted_right(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    line = f"{XID.format(74)}\n".encode()
    lines = 2 * BLOCK // len(NOISE)
    path.write_bytes(NOISE.encode() * lines + line + NOISE.encode() * lines + line.rstrip())

    assert [hit["line_number"] for hit in found(path)] == [lines + 1, 2 * lines + 2]


def test_a_live_log_is_followed() -> None:
    with subprocess.Popen(
        [*HOLDFAST, "scan", "kernel-log", "-o", "json", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for code in (74, 73):
            process.stdin.write(f"{XID.format(code)}\n".encode())
            assert json.loads(process.stdout.readline())["code"] == code


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "storm"
    path.write_text(f"{XID.format(45)}\n" * 5000, encoding="utf-8")
    with subprocess.Popen(
        [*HOLDFAST, "scan", "kernel-log", "-o", "json", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == b""


def test_the_table_is_cut_to_a_terminal_and_colored_there(log: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*HOLDFAST, "scan", "kernel-log", str(log)],
        stdout=theirs,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm", "NO_COLOR": ""},
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[31mfatal\x1b[0m" in text
    assert "…".encode() in text


def test_a_long_file_and_a_long_line_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    with path.open("wb") as log:
        log.truncate(1 << 27)  # a hole: one line of 128 MiB
    limit = 64 << 20

    done = subprocess.run(
        [*HOLDFAST, "scan", "kernel-log", str(path)],
        check=False,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )

    assert done.returncode == 0


RECORDINGS = Path(__file__).parents[1] / "recordings" / "kernel-log"


@pytest.mark.parametrize("name", ["gpu-off-bus", "host", "neuron", "switch"])
def test_every_family_is_found(name: str) -> None:
    path = RECORDINGS / f"{name}.txt"
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["findings"]
    for finding in expected:
        if finding["reason"] == "NeuronDMATimeout":  # seen once
            finding |= {"severity": "warning", "remedy": "none"}

    assert found(path) == [{"file": str(path), **finding} for finding in expected]
    assert all(list(finding) == KEYS for finding in found(path))


def test_what_proves_nothing_as_yet_calls_for_nothing_as_yet() -> None:
    hits = [hit for hit in found(RECORDINGS / "disk.txt") if hit["reason"] == "NvmeTimeout"]

    assert [(hit["line_number"], hit["severity"], hit["remedy"]) for hit in hits] == [
        *((number, "warning", "none") for number in (1, 2, 3, 4, 5)),
        (6, "fatal", "reboot"),
    ]


def test_each_file_has_sightings_of_its_own(tmp_path: Path) -> None:
    lines = (RECORDINGS / "disk.txt").read_text(encoding="utf-8").splitlines()
    pieces = [tmp_path / str(number) for number in (0, 3, 5)]
    for piece in pieces:
        piece.write_text(lines[int(piece.name)] + "\n", encoding="utf-8")

    assert [hit["remedy"] for hit in found(*pieces)] == ["none"] * 3


NVME = "nvme nvme0: I/O 29 QID 1 timeout, aborting"


@pytest.mark.parametrize(
    "form",
    [
        "[{0:12.6f}] {1}\n",
        "[{0:5.6f}] {1}\n",
        "4,{0:.0f},{0:.0f}000000,-;{1}\n",
        "kern  :warn  : [{0:12.6f}] {1}\n",
        "<4>[{0:12.6f}] [   T42] {1}\n",
        "[{0:12.6f} <   20.000000>] {1}\n",
    ],
)
def test_what_counts_when_it_comes_often_is_counted_by_the_kernels_clock_too(
    tmp_path: Path, form: str
) -> None:
    path = tmp_path / "dmesg"

    def remedies(*seconds: float) -> list[str]:
        path.write_text("".join(form.format(at, NVME) for at in seconds), encoding="utf-8")
        return [hit["remedy"] for hit in found(path)]

    assert remedies(100, 120, 140) == ["none", "none", "reboot"]
    assert remedies(100, 101, 102, 103) == ["none"] * 4  # one hiccup
    assert remedies(100, 5000, 10000) == ["none"] * 3  # too far apart


@pytest.mark.parametrize("stamp", ["[ +{0:.6f}]", "[999999999{0:.0f}.999999]", ""])
def test_a_line_that_reports_no_time_of_its_own_proves_nothing(tmp_path: Path, stamp: str) -> None:
    path = tmp_path / "dmesg"
    lines = (f"{stamp.format(at)} {NVME}\n" for at in (120, 150, 180))
    path.write_text("".join(lines), encoding="utf-8")

    assert {hit["remedy"] for hit in found(path)} == {"none"}


def verdict_on(*paths: Path) -> list[dict[str, Any]]:
    return found("--verdict", *paths)


def test_a_verdict_is_that_of_an_agent_that_has_read_the_log(log: Path) -> None:
    [reported] = verdict_on(log)

    assert list(reported) == ["kind", "file", "verdict", "undecided", "findings"]
    assert (reported["kind"], reported["file"], reported["verdict"]) == (
        "kernel-log",
        str(log),
        "unhealthy",
    )
    assert [(one["code"], one["remedy"]) for one in reported["findings"]] == [
        (73, "reboot"),
        (74, "replace"),
        (13, "none"),
    ]


def test_what_follows_from_a_fault_and_what_was_taken_back_is_no_finding_of_a_verdict(
    tmp_path: Path,
) -> None:
    path = tmp_path / "dmesg"
    change = "GPU recovery action changed from 0x{} to 0x{} (x)"
    path.write_text(
        f"[ 10.0] {XID.format(79)}\n[ 11.0] {XID.format(45)}\n"
        f"[ 500.0] NVRM: Xid (PCI:0000:c0:00): 154, {change.format('0 (None)', '1')}\n"
        f"[ 501.0] NVRM: Xid (PCI:0000:c0:00): 154, {change.format('1 (GPU Reset)', '0')}\n",
        encoding="utf-8",
    )

    [reported] = verdict_on(path)

    assert [(one["code"], one["remedy"]) for one in reported["findings"]] == [
        (79, "replace"),
        (154, "none"),
    ]


def test_a_quiet_kernel_is_healthy_and_what_is_no_kernel_log_is_unknown(tmp_path: Path) -> None:
    texts = [
        NOISE,
        "[ 1.5] usb 1-1: new\n",
        "",
        "N/A\n",
        "\0" * 99,
        f"{XID[:20]}\n",
        "<html>\n" * 9,
    ]
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")

    reported = verdict_on(*paths)

    assert [one["verdict"] for one in reported] == ["healthy"] * 2 + ["unknown"] * 5
    assert all(bool(one["undecided"]) == (one["verdict"] == "unknown") for one in reported)


def test_a_fault_needs_no_prefix_to_count(tmp_path: Path) -> None:
    path = tmp_path / "dmesg"
    path.write_text(XID.format(74), encoding="utf-8")

    assert verdict_on(path)[0]["verdict"] == "unhealthy"


def test_verdicts_come_as_a_table_too_and_a_file_that_cannot_be_read_is_reported(
    log: Path, tmp_path: Path
) -> None:
    result = scanned("--verdict", log, tmp_path / "none")

    assert result.exit_code == 2
    assert [line.split()[1:2] for line in result.stdout.splitlines()] == [
        ["VERDICT"],
        *[["unhealthy"]] * 3,
    ]
    assert "cannot read" in result.stderr
