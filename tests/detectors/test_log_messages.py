"""Messages of the kernel in all the forms in which they were seen, and what looks like them."""

from datetime import UTC, datetime

import pytest

from holdfast.detectors.contract import KERNEL_LOG, LogLine, Profile, Readings
from holdfast.detectors.sxid_codes import ALWAYS_FATAL, SXID_NAMES
from holdfast.detectors.table import detectors
from holdfast.model.health import Finding

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
WATCHERS = {
    profile: [one for one in detectors(profile) if KERNEL_LOG in one.reads] for profile in Profile
}
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): "
MCE = "mce: [Hardware Error]: CPU 3: Machine Check"


def found(message: str, profile: Profile = Profile.HYPERPOD) -> list[Finding]:
    readings = Readings(kernel_log=(LogLine(message=message, observed_at=NOW),))
    return [finding for watcher in WATCHERS[profile] for finding in watcher.detect(readings)]


@pytest.mark.parametrize(
    ("message", "reason", "device", "remedy"),
    [
        (f"{MCE}: 0 Bank 4: a600000000020408", "MachineCheckUncorrected", "CPU 3", "replace"),
        (f"{MCE}: 0 Bank 4: b600000000020408", "MachineCheckUncorrected", "CPU 3", "replace"),
        (f"{MCE}: 0 Bank 4: e600000000020408", "MachineCheckUncorrected", "CPU 3", "replace"),
        (f"{MCE} Exception: 5 Bank 18: be0000000500011", "", "", ""),
        (
            f"{MCE} Exception: 5 Bank 18: be00000000800400",
            "MachineCheckUncorrected",
            "CPU 3",
            "replace",
        ),
        (
            f"{MCE} Exception: f Bank 1: fe00000000800400",
            "MachineCheckUncorrected",
            "CPU 3",
            "replace",
        ),
        (f"{MCE}: 0 Bank 7: 8c00004000010090", "MachineCheckCorrected", "CPU 3", "none"),
        (f"{MCE}: 0 Bank 7: 9c00004000010090", "MachineCheckCorrected", "CPU 3", "none"),
        (f"{MCE}: 0 Bank 7: cc00004000010090", "MachineCheckCorrected", "CPU 3", "none"),
        (f"{MCE}: 0 Bank 7: dc00004000010090", "MachineCheckCorrected", "CPU 3", "none"),
        (f"{MCE}: 0 Bank 7: 2c00004000010090", "", "", ""),
        ("blk_update_request: I/O error, dev nvme1n1, sector 8", "IOError", "nvme1n1", "none"),
        ("print_req_error: critical medium error, dev sdf, sector 8", "IOError", "sdf", "none"),
        ("end_request: I/O error, dev sda, sector 8", "IOError", "sda", "none"),
        ("I/O error, dev loop3, sector 0 op 0x0:(READ)", "", "", ""),
        ("I/O error, dev fd0, sector 0 op 0x0:(READ)", "", "", ""),
        ("Buffer I/O error on dev sr0, logical block 0, async page read", "", "", ""),
        ("Buffer I/O error on device nvme0n1p1, logical block 1", "IOError", "nvme0n1p1", "none"),
        (
            "md/raid:mdX: Disk failure on dm-25, disabling device.",
            "RaidDiskFailure",
            "dm-25",
            "reboot",
        ),
        ("XFS (nvme1n1): Filesystem has been shut down due to user request (0x1).", "", "", ""),
        (
            "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
            "XfsHasShutDown",
            "dm-0",
            "reboot",
        ),
        (
            "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
            "NvmeTimeout",
            "nvme4",
            "reboot",
        ),
        ("nvme nvme0: I/O 29 QID 1 timeout, completion polled", "", "", ""),
        (
            "EDAC MC12: 3 UE memory scrubbing error on CPU_SrcID#1",
            "EdacUncorrectableError",
            "MC12",
            "replace",
        ),
        ("EDAC MC: Ver: 3.0.0", "", "", ""),
        (
            "pcieport 0000:00:02.0: AER: Multiple Uncorrected (Fatal) error received: 0000:00:02.0",
            "PCIeFatalError",
            "0000:00:02.0",
            "reboot",
        ),
        (
            "pcieport 0000:00:02.0: AER: Uncorrectable (Fatal) error message received from"
            " 0000:63:00.0",
            "PCIeFatalError",
            "0000:63:00.0",
            "reboot",
        ),
        (
            "pcieport 0000:00:02.0: AER: Correctable error message received from 0000:63:00.0",
            "",
            "",
            "",
        ),
        (
            "Memory cgroup out of memory: Kill process 98 (a b) score 1974 or sacrifice child",
            "OOMKilling",
            "a b",
            "none",
        ),
        (
            "Killed process 9876 (apache2), UID 48, total-vm:270532kB",
            "OOMKilling",
            "apache2",
            "none",
        ),
        ("Out of memory: Killed process 9 (a) b) total-vm:1kB", "OOMKilling", "a) b", "none"),
        ("oom_reaper: reaped process 9876 (apache2), now anon-rss:0kB", "", "", ""),
        (
            "NMI watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [a:1]",
            "SoftLockup",
            "CPU#12",
            "none",
        ),
        ("INFO: rcu_sched self-detected stall on CPU", "RcuStall", "rcu_sched", "none"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter succeeded", "", "", ""),
        ("NVRM: The NVIDIA probe routine was not called for 1 device(s).", "", "", ""),
        (
            "infiniband rdmap16s27: Admin queue is closed",
            "EFACommandTimeout",
            "rdmap16s27",
            "reboot",
        ),
        (
            "efa 0000:a0:19.0: Reset indication didn't turn off",
            "EFAInitFailed",
            "0000:a0:19.0",
            "reboot",
        ),
        ("infiniband mlx5_0: Admin queue is closed", "", "", ""),
        (
            "mlx5_core 0000:c1:00.0 ib0: poll_health:825: device's health compromised -"
            " reached miss count.",
            "Mlx5HealthCompromised",
            "0000:c1:00.0",
            "reboot",
        ),
        ("mlx5_core 0000:c1:00.1: Port module event: module 1, Cable unplugged", "", "", ""),
        ("NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out", "", "", ""),
    ],
)
def test_a_message_is_what_it_says(message: str, reason: str, device: str, remedy: str) -> None:
    findings = [(one.reason, one.device, one.remedy) for one in found(message)]

    assert findings == ([(reason, device, remedy)] if reason else [])


@pytest.mark.parametrize("code", sorted({*ALWAYS_FATAL, 20034, 24007, 11004, 26006, 30001}))
def test_a_fatal_error_of_a_switch_replaces_or_reboots(code: int) -> None:
    message = f"{SWITCH}{code}, Fatal, Link 28 words (First)"

    [ours], [theirs] = (found(message, profile) for profile in Profile)

    assert (ours.code, ours.device) == (code, "PCI:0000:c3:00.0")
    assert (ours.remedy, ours.condition) == ("replace", "NvidiaErrorTerminate")
    assert (theirs.remedy, theirs.condition) == ("reboot", "NvidiaErrorReboot")


def test_what_is_always_fatal_needs_no_word_for_it() -> None:
    remedies = {
        code: found(f"{SWITCH}{code:05}, HALTED")[0].remedy for code in (*SXID_NAMES, 26006, 28002)
    }

    assert {code for code, remedy in remedies.items() if remedy == "replace"} == {
        10003, 12020, 22003, 22011, 23001, 23002, 23003, 23004, 23005, 23006, 23007, 23008, 23009,
        23010, 23011, 23012, 23013, 23014, 23015, 23016, 23017,
    }  # fmt: skip


@pytest.mark.parametrize("word", ["Non-fatal", "Correctable", "Fatalistic", "SOE HALTED", ""])
def test_other_errors_of_a_switch_touch_nothing(word: str) -> None:
    [finding] = found(f"{SWITCH}20034, {word}, Link 28 words")

    assert (finding.remedy, finding.severity) == (
        "none",
        "info" if word == "Correctable" else "warning",
    )


@pytest.mark.parametrize("code", [20034, 23001])
@pytest.mark.parametrize(
    "rest", ["Severity 1 Engine instance 28 Sub-engine instance 00", "Data {0x1c000140, 0x0}"]
)
def test_the_lines_that_follow_an_sxid_belong_to_it(code: int, rest: str) -> None:
    assert found(f"{SWITCH}{code}, {rest}") == []


ERRORS = ["SRAM_UNCORRECTABLE_ERROR", "NC_UNCORRECTABLE_ERROR", "HBM_UNCORRECTABLE_ERROR"]
IDS = "instance-id=i-0592464924bd45322 hostname=ip-172-31-61-252 nd-id=7 nc-id=0 serial-num=19fc"


@pytest.mark.parametrize("error", [*ERRORS, "DMA_ERROR"])
@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        (" action=TERMINATE_INSTANCE", "replace"),
        (" action=REBOOT_INSTANCE", "reboot"),
        (" action=NONE", "none"),
        (" action=NONE_OF_THOSE", "replace"),
        (" action=REBOOT_INSTANCES", "replace"),
        (" reaction=NONE", "replace"),
        (" action=PRAY", "replace"),
        ("", "replace"),
    ],
)
def test_an_error_of_a_neuron_device_asks_for_an_action(
    error: str, action: str, remedy: str
) -> None:
    for before in ("", "2025-11-20T12:00:01.123Z ", "kernel: ", "2025-11-20 12:00:01 ip-1 "):
        [finding] = found(f"{before}NEURON_HW_ERR={error} {IDS}{action}")

        assert finding.reason == f"NeuronHasError_{error}"
        assert (finding.condition, finding.device) == ("NeuronHealth", "nd7")
        assert finding.remedy == remedy
        assert finding.severity == ("warning" if remedy == "none" else "fatal")


@pytest.mark.parametrize(
    "line",
    [
        "NEURON_HW_ERR=dma_error nd-id=0",
        "NEURON_HW_ERR=NONE nd-id=0 action=TERMINATE_INSTANCE",
        "NEURON_HW_ERR= DMA_ERROR nd-id=0",
        "XNEURON_HW_ERR=DMA_ERROR nd-id=0",
        "a b c d NEURON_HW_ERR=DMA_ERROR nd-id=0",
    ],
)
def test_what_is_no_error_of_a_neuron_device(line: str) -> None:
    assert found(line) == []


@pytest.mark.parametrize(
    ("action", "remedy", "urgency"),
    [
        (" action=TERMINATE_INSTANCE", "replace", "deferred"),
        (" action=REBOOT_INSTANCE", "reboot", "deferred"),
        (" action=NONE", "none", "immediate"),
        (" action=PRAY", "restart-app", "immediate"),
        ("", "restart-app", "immediate"),
    ],
)
def test_a_hang_of_collectives_touches_a_node_only_where_the_runtime_asks_for_it(
    action: str, remedy: str, urgency: str
) -> None:
    [finding] = found(f"NEURON_HW_ERR=HANG_ON_COLLECTIVES {IDS}{action}")

    assert (finding.reason, finding.condition, finding.device) == (
        "NeuronHasError_HANG_ON_COLLECTIVES",
        "NeuronHealth",
        "nd7",
    )
    assert (finding.remedy, finding.urgency) == (remedy, urgency)


def test_an_error_of_a_neuron_device_that_nobody_explains_is_reported() -> None:
    [finding] = found(f"NEURON_HW_ERR=HANG_ON_COMPUTE {IDS} action=TERMINATE_INSTANCE")

    assert (finding.reason, finding.remedy) == ("NeuronHasError_UNKNOWN", "none")
    assert found(f"NEURON_HW_ERR=NONE {IDS}") == []
