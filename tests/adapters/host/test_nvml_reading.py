"""NVML through its real Python binding, against a library that is built here."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.commands import run_command
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import Profile, Readings, Sample
from holdfast.detectors.device_inventory import inventory
from holdfast.detectors.gpu_state import build, judge_xml
from holdfast.detectors.judgement import HealthState
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Remedy
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
STUB = Path(__file__).with_name("nvml_stub.c")
READING = [sys.executable, "-m", "holdfast.adapters.host.nvml_reading"]

pytest.importorskip("pynvml")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc, which builds the library that stands for NVIDIA's")
    folder = tmp_path_factory.mktemp("nvml")
    built = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, STUB], check=True)
    return folder


class Stub:
    """A machine with the driver, without ``nvidia-smi``."""

    def __init__(self, library: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/uptime").write_text("9999.0 1.0\n", encoding="utf-8")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
        self.machine = Machine(root=root, path=str(root))
        self._monkeypatch = monkeypatch

    def sample(self, state: str) -> Sample:
        self._monkeypatch.setenv("NVML_STUB", state)
        source = SOURCES["nvidia-smi"]
        assert source.is_on(self.machine)
        reading = source.plan(self.machine, timedelta(minutes=1)).read()
        return Sample(name="nvidia-smi", taken_at=NOW, text=reading.text, values=reading.values)

    def found(self, state: str) -> list[Finding]:
        sample = self.sample(state)
        return build(Profile.HYPERPOD).detect(Readings(samples={"nvidia-smi": sample}))


@pytest.fixture
def stub(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    return Stub(library, tmp_path, monkeypatch)


def test_healthy_gpus_give_no_finding(stub: Stub) -> None:
    assert stub.found("healthy") == []


def test_the_devices_are_listed_with_driver_firmware_and_temperature(stub: Stub) -> None:
    [gpus] = inventory((), {"nvidia-smi": stub.sample("faulty")})

    assert gpus.versions == {"driver": "570.86.15"}
    good, bad = gpus.devices
    assert (good.name, good.model) == ("PCI:0000:a8:00", "NVIDIA H200")
    assert good.values["vbios"] == "96.00.89.00.01"
    assert good.values["temperature"] == "41 C"
    assert (good.values["ecc_uncorrected"], bad.values["ecc_uncorrected"]) == ("0", "3")
    assert good.values["ecc_uncorrected_lifetime"] == "7"
    [old] = inventory((), {"nvidia-smi": stub.sample("old")})
    assert "temperature" not in old.devices[0].values


def test_every_fault_is_judged_as_if_nvidia_smi_had_reported_it(stub: Stub) -> None:
    findings = stub.found("faulty")

    assert {(one.reason, one.remedy) for one in findings} == {
        (Reason.XID_RECOVERY_ACTION, Remedy.REBOOT),
        (Reason.GPU_ECC, Remedy.REBOOT),
        (Reason.GPU_UNREPAIRABLE, Remedy.REPLACE),
        (Reason.GPU_ROW_REMAP_PENDING, Remedy.REBOOT),
        (Reason.GPU_ROW_REMAP_FAILED, Remedy.REPLACE),
        (Reason.GPU_PAGE_RETIREMENT, Remedy.REBOOT),
        (Reason.GPU_FABRIC, Remedy.REBOOT),
        (Reason.GPU_THERMAL, Remedy.NONE),
        (Reason.GPU_POWER, Remedy.NONE),
    }
    assert {one.device for one in findings} == {"PCI:0000:b9:00"}


def test_a_gpu_that_is_lost_is_reported_and_the_other_is_read(stub: Stub) -> None:
    [finding] = [one for one in stub.found("lost") if one.reason != Reason.SOURCE_FAILED]

    assert (finding.reason, finding.remedy, finding.device) == (
        Reason.GPU_LOST,
        Remedy.REBOOT,
        "number 1",
    )


def test_an_unknown_error_is_a_gpu_that_does_not_answer(stub: Stub) -> None:
    assert {one.reason for one in stub.found("unknown")} == {Reason.GPU_LOST}


def test_what_an_old_gpu_cannot_report_is_neither_good_nor_bad(stub: Stub) -> None:
    assert stub.found("old") == []


@pytest.mark.parametrize(
    ("state", "why"),
    [("no-driver", "exit status 1: Failed to initialize NVML"), ("abort", "exit status -6")],
)
def test_where_nvml_gives_no_answer_nothing_is_known(stub: Stub, state: str, why: str) -> None:
    [finding] = stub.found(state)

    assert (finding.reason, finding.remedy) == (Reason.SOURCE_FAILED, Remedy.NONE)
    assert why in finding.message


def test_without_the_library_nothing_is_known(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stub.machine.root))

    [finding] = stub.found("healthy")

    assert finding.reason == Reason.SOURCE_FAILED


def test_a_call_that_never_returns_is_given_up(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("NVML_STUB", "hang")

    with pytest.raises(BackendError, match="did not end within"):
        run_command(READING, timeout=timedelta(seconds=2))


def test_nvidia_smi_is_asked_where_there_is_one(stub: Stub) -> None:
    tool = stub.machine.root / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nprint('No devices were found')\n", encoding="utf-8")
    tool.chmod(0o755)

    assert [one.message for one in stub.found("faulty")] == [
        "cannot evaluate nvidia-smi: No devices were found"
    ]


def test_a_machine_without_the_driver_has_no_such_source(tmp_path: Path) -> None:
    assert not SOURCES["nvidia-smi"].is_on(Machine(root=tmp_path, path=str(tmp_path)))


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/proc/driver/nvidia").exists(), reason="no driver of NVIDIA")
def test_a_real_healthy_gpu_gives_no_fault_through_nvml() -> None:
    judgement = judge_xml(run_command(READING, timeout=timedelta(seconds=30)).stdout, NOW)

    assert judgement.findings == ()
    assert judgement.verdict is HealthState.HEALTHY
