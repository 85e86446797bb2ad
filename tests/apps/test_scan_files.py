"""Every recorded output of a tool, with what it means."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.apps.cli.scan.commands import scan

RECORDINGS = Path(__file__).parents[1] / "recordings"

KINDS = {
    "nvidia-smi-xml": "nvidia-smi",
    "nvidia-smi-text": "nvidia-smi",
    "dcgm-diag": "dcgm",
    "dcgm-health": "dcgm",
    "neuron-ls": "neuron",
    "neuron-monitor": "neuron",
    "fi-info": "efa",
    "ibstat": "infiniband",
    "nccl-tests": "nccl",
    "stress-ng": "stress",
}

HEALTHY = {
    "nvidia-smi-xml": "healthy.xml history-only.xml process-named-like-an-error.xml "
    "fabric-in-progress.xml",
    "nvidia-smi-text": "healthy.txt table-healthy.txt",
    "dcgm-diag": "diag4-pass.json diag4-text-before.json diag2-pass.json",
    "dcgm-health": "health-ok.json",
    "neuron-ls": "ls-16.json",
    "neuron-monitor": "monitor-ok.jsonl",
    "fi-info": "fi-32.txt fi-31.txt",
    "ibstat": "ibstat-ok.txt",
    "nccl-tests": "ok.txt slow.txt small.txt",
    "stress-ng": "ok.txt stress-ok.txt",
}

WARNED = [
    ("nvidia-smi-xml", "fan-error.xml", "NvidiaReadingError"),
    ("nvidia-smi-xml", "hot.xml", "NvidiaThermalError"),
    ("nvidia-smi-xml", "power-brake.xml", "NvidiaPowerError"),
    ("nvidia-smi-text", "power-brake.txt", "NvidiaPowerError"),
    ("nvidia-smi-text", "addressing-mode.txt", "NvidiaReadingError"),
    ("nvidia-smi-text", "table-fan.txt", "NvidiaReadingError"),
    ("dcgm-health", "health-thermal.json", "DCGMHealthCode"),
    ("dcgm-health", "health-warning.json", "DCGMHealthCode"),
    ("dcgm-diag", "diag4-config.json", "DCGMDiagnosticFailure"),
    ("neuron-monitor", "monitor-hardware.jsonl", "NeuronHardwareError"),
]

FAULTS = [
    ("nvidia-smi-xml", "remap-pending.xml", "NvidiaRowRemapPending", "reboot"),
    ("nvidia-smi-xml", "remap-failure.xml", "NvidiaRowRemapFailure", "replace"),
    ("nvidia-smi-xml", "volatile-uncorrectable.xml", "NvidiaDoubleBitError", "reboot"),
    ("nvidia-smi-xml", "sram-threshold.xml", "NvidiaUnrepairableMemory", "replace"),
    ("nvidia-smi-xml", "unrepairable.xml", "NvidiaUnrepairableMemory", "replace"),
    ("nvidia-smi-xml", "channel-repair.xml", "NvidiaDoubleBitError", "reboot"),
    ("nvidia-smi-xml", "recovery-reboot.xml", "NvidiaGpuRecoveryAction", "reboot"),
    ("nvidia-smi-xml", "recovery-reset.xml", "NvidiaGpuRecoveryAction", "reset-gpu"),
    ("nvidia-smi-xml", "recovery-drain.xml", "NvidiaGpuRecoveryAction", "reset-gpu"),
    ("nvidia-smi-xml", "fabric-failed.xml", "NvidiaFabricError", "reboot"),
    ("nvidia-smi-xml", "seven-of-eight.xml", "NvidiaDeviceCountMismatch", "reboot"),
    ("nvidia-smi-xml", "unknown-error.xml", "NvidiaGpuLost", "reboot"),
    ("nvidia-smi-xml", "gpu-is-lost.xml", "NvidiaGpuLost", "reboot"),
    ("nvidia-smi-xml", "lost-handle.txt", "NvidiaGpuLost", "reboot"),
    ("nvidia-smi-text", "unknown-handle.txt", "NvidiaGpuLost", "reboot"),
    ("nvidia-smi-text", "remap-pending.txt", "NvidiaRowRemapPending", "reboot"),
    ("nvidia-smi-text", "remap-failure.txt", "NvidiaRowRemapFailure", "replace"),
    ("nvidia-smi-text", "volatile.txt", "NvidiaDoubleBitError", "reboot"),
    ("nvidia-smi-text", "table-ecc.txt", "NvidiaDoubleBitError", "reboot"),
    ("nvidia-smi-text", "table-power.txt", "NvidiaGpuLost", "reboot"),
    ("dcgm-health", "health-memory.json", "DCGMHealthCodeFatal", "reboot"),
    ("dcgm-diag", "diag4-memory.json", "DCGMDiagnosticFailure", "replace"),
    ("dcgm-diag", "diag4-remap.json", "DCGMDiagnosticFailure", "replace"),
    ("dcgm-diag", "diag4-reset.json", "DCGMDiagnosticFailure", "reset-gpu"),
    ("dcgm-diag", "diag4-config-and-isolate.json", "DCGMDiagnosticFailure", "replace"),
    ("dcgm-diag", "diag4-summary-only.json", "DCGMDiagnosticFailure", "reboot"),
    ("dcgm-diag", "diag33-deployment.json", "DCGMDiagnosticFailure", "reboot"),
    ("dcgm-diag", "diag31-string.json", "DCGMDiagnosticFailure", "replace"),
    ("dcgm-diag", "diag-iterations.json", "DCGMDiagnosticFailure", "replace"),
    ("neuron-ls", "ls-15.json", "NeuronDeviceCountMismatch", "reboot"),
    ("neuron-ls", "ls-core-missing.json", "NeuronDeviceCountMismatch", "reboot"),
    ("neuron-monitor", "monitor-sram.jsonl", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR", "replace"),
    ("neuron-monitor", "monitor-hbm.json", "NeuronHasError_HBM_UNCORRECTABLE_ERROR", "replace"),
    ("ibstat", "ibstat-down.txt", "NetworkLinkDown", "reboot"),
    ("ibstat", "ibstat-recovery.txt", "NetworkLinkDown", "reboot"),
    ("nccl-tests", "wrong.txt", "NvidiaNCCLError", "none"),
    ("stress-ng", "bit-errors.txt", "StressTestFailed", "none"),
]

UNKNOWN = {
    "nvidia-smi-xml": "not-available.xml truncated.xml truncated-in-first.xml empty.xml "
    "billion-laughs.xml another-document.xml driver-not-loaded.txt version-mismatch.txt "
    "no-devices.txt healthy.txt",
    "nvidia-smi-text": "one-of-two.txt truncated.txt truncated-before-second.txt "
    "table-truncated.txt table-no-ecc.txt driver-not-loaded.txt version-mismatch.txt "
    "no-devices.txt empty.xml "
    "healthy.xml",
    "dcgm-diag": "diag4-skipped.json diag4-runtime-error.json diag-no-engine.txt "
    "diag-truncated.json health-ok.json",
    "dcgm-health": "health-no-details.json health-internal.json health-not-enabled.txt "
    "health-truncated.json diag4-pass.json",
    "neuron-ls": "ls-empty.json ls-truncated.json ls-no-driver.txt monitor-ok.jsonl",
    "neuron-monitor": "monitor-no-devices.jsonl monitor-truncated.jsonl ls-16.json",
    "fi-info": "fi-truncated.txt fi-none.txt fi-tcp.txt",
    "ibstat": "ibstat-unplugged.txt ibstat-truncated.txt ibstat-none.txt",
    "nccl-tests": "unchecked.txt truncated.txt failed.txt",
    "stress-ng": "broken-off.txt truncated.txt killed.txt no-workers.txt stress-failed.txt "
    "stress-idle.txt",
}


def invoked(kind: str, *arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(scan, [kind, *map(str, arguments)], input=stdin)


def judged(kind: str, name: str, *options: str) -> dict[str, Any]:
    path = RECORDINGS / KINDS[kind] / name
    result = invoked(kind, "--output", "json", *options, path)
    assert result.exit_code == 0
    [line] = result.stdout.splitlines()
    document = json.loads(line)
    assert (document["kind"], document["file"]) == (kind, str(path))
    return document


def pairs(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(kind, name) for kind, names in table.items() for name in names.split()]


@pytest.mark.parametrize(("kind", "name"), pairs(HEALTHY))
def test_what_was_measured_and_is_good_is_healthy(kind: str, name: str) -> None:
    document = judged(kind, name)

    assert (document["verdict"], document["findings"]) == ("healthy", [])


@pytest.mark.parametrize(("kind", "name", "reason"), WARNED)
def test_a_warning_makes_nothing_unhealthy(kind: str, name: str, reason: str) -> None:
    document = judged(kind, name)

    assert document["verdict"] == "healthy"
    assert document["findings"]
    assert {finding["remedy"] for finding in document["findings"]} == {"none"}


@pytest.mark.parametrize(("kind", "name", "reason", "remedy"), FAULTS)
def test_a_fault_is_unhealthy_and_says_what_helps(
    kind: str, name: str, reason: str, remedy: str
) -> None:
    document = judged(kind, name)

    assert document["verdict"] == "unhealthy"
    assert (reason, remedy) in {
        (finding["reason"], finding["remedy"]) for finding in document["findings"]
    }


@pytest.mark.parametrize(("kind", "name"), pairs(UNKNOWN))
def test_what_cannot_be_decided_is_unknown_and_no_reason_for_a_repair(kind: str, name: str) -> None:
    document = judged(kind, name)

    assert document["verdict"] == "unknown"
    assert document["undecided"]
    assert {finding["remedy"] for finding in document["findings"]} <= {"none"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [b"", b"\n", b"\0" * 5000, b"x" * 1_000_000, bytes(range(256))])
def test_garbage_is_unknown(kind: str, garbage: bytes) -> None:
    result = invoked(kind, "-o", "json", "-", stdin=garbage)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("kind", "name", "option", "reason"),
    [
        ("nvidia-smi-xml", "healthy.xml", "--expected=9", "NvidiaDeviceCountMismatch"),
        ("nvidia-smi-xml", "no-devices.txt", "--expected=8", "NvidiaDeviceCountMismatch"),
        ("nvidia-smi-text", "table-healthy.txt", "--expected=2", "NvidiaDeviceCountMismatch"),
        ("neuron-ls", "ls-16.json", "--expected=17", "NeuronDeviceCountMismatch"),
        ("fi-info", "fi-31.txt", "--expected=32", "EFADeviceCountMismatch"),
        ("fi-info", "fi-none.txt", "--expected=32", "EFADeviceCountMismatch"),
        ("nccl-tests", "slow.txt", "--least-gbps=80", "NCCLBandwidthLow"),
    ],
)
def test_less_than_what_is_asked_for_is_a_fault(
    kind: str, name: str, option: str, reason: str
) -> None:
    document = judged(kind, name, option)

    assert document["verdict"] == "unhealthy"
    assert [finding["reason"] for finding in document["findings"]] == [reason]


@pytest.mark.parametrize(
    ("kind", "name", "option"),
    [
        ("nvidia-smi-xml", "healthy.xml", "--expected=8"),
        ("neuron-ls", "ls-16.json", "--expected=16"),
        ("fi-info", "fi-32.txt", "--expected=32"),
        ("nccl-tests", "ok.txt", "--least-gbps=437.79"),
        ("stress-ng", "stress-ok.txt", "--seconds=2"),
    ],
)
def test_as_much_as_is_asked_for_is_healthy(kind: str, name: str, option: str) -> None:
    assert judged(kind, name, option)["verdict"] == "healthy"


@pytest.mark.parametrize(
    ("kind", "name", "option"),
    [
        ("nvidia-smi-xml", "truncated.xml", "--expected=8"),
        ("nvidia-smi-text", "truncated-before-second.txt", "--expected=1"),
        ("fi-info", "fi-truncated.txt", "--expected=32"),
        ("nccl-tests", "small.txt", "--least-gbps=80"),
        ("stress-ng", "stress-ok.txt", "--seconds=3"),
    ],
)
def test_a_request_decides_nothing_where_too_little_was_measured(
    kind: str, name: str, option: str
) -> None:
    assert judged(kind, name, option)["verdict"] == "unknown"


def test_a_finding_names_the_device_as_the_kernel_does() -> None:
    [finding] = judged("nvidia-smi-xml", "remap-pending.xml")["findings"]

    assert finding["device"] == "PCI:0000:b9:00"
    assert finding["urgency"] == "deferred"


def test_a_configuration_error_of_dcgm_does_not_hide_a_broken_gpu() -> None:
    findings = judged("dcgm-diag", "diag4-config-and-isolate.json")["findings"]

    assert [finding["remedy"] for finding in findings].count("replace") == 1
    assert [finding["device"] for finding in findings if finding["remedy"] == "replace"] == [
        "GPU 7"
    ]


def test_a_file_that_cannot_be_read_is_reported_and_the_others_are_judged(tmp_path: Path) -> None:
    good = RECORDINGS / "efa" / "fi-32.txt"

    result = invoked("fi-info", "-o", "json", tmp_path / "missing", good)

    assert result.exit_code == 2
    assert "cannot read" in result.stderr
    assert json.loads(result.stdout)["file"] == str(good)


def test_the_table_shows_each_finding_and_why_a_file_is_unknown() -> None:
    folder = RECORDINGS / "nvidia-smi"

    result = invoked("nvidia-smi-xml", folder / "remap-failure.xml", folder / "truncated.xml")

    assert result.stdout.count("unhealthy") == 2
    assert "ends early" in result.stdout
