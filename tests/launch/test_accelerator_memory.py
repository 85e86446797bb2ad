"""Memory and use of GPUs, against a library with NVML's functions that reads files."""

import ctypes
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from launch.nvml_library import built_nvml

from holdfast.adapters.host.accelerator_activity import NVLINK_FIELDS, Field
from holdfast.adapters.host.accelerator_state import read_devices, with_accelerators
from holdfast.apps.launch.accelerator_wait import AcceleratorWait
from holdfast.decisions.rank_snapshots import RankSnapshot


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_nvml(tmp_path_factory.mktemp("nvml"))


def wait(
    library: Path, tmp_path: Path, used: str, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "used").write_text(used, encoding="utf-8")
    command = [sys.executable, "-m", "holdfast.adapters.host.accelerator_memory"]
    return subprocess.run(
        [*command, "--timeout", "0.3", "--library", str(library), *options],
        env={"USED_MIB": str(tmp_path / "used"), **variables},
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
    )


@pytest.mark.parametrize(
    ("used", "devices", "status", "output"),
    [
        ("512 0", "", 0, ""),
        ("513 0", "", 1, "GPU 0: 513 MiB in use, expected at most 512 MiB\n"),
        ("513 9000", "1", 1, "GPU 1: 9000 MiB in use, expected at most 512 MiB\n"),
        ("9000 0", "1", 0, ""),
        ("9000 0", "GPU-b0", 0, ""),
        ("0 9000", "GPU-b0", 1, "GPU 1: 9000 MiB in use, expected at most 512 MiB\n"),
        ("9000 9000", "-1", 0, ""),
        ("unreadable", "", 0, ""),
        ("9000 9000 513", "MIG-c0ffee", 1,
         "MIG-c0ffee: 513 MiB in use, expected at most 512 MiB\n"),
        ("9000 9000 512", "MIG-c0ffee", 0, ""),
        ("9000 9000", "MIG-other", 2, "MIG-other: no such device\n"),
        ("9000 0", "1,7,GPU-x", 2, "7, GPU-x: no such device\n"),
        ("0 9000", "7,1", 1, "GPU 1: 9000 MiB in use, expected at most 512 MiB\n"),
    ],
)  # fmt: skip
def test_only_the_memory_of_visible_gpus_counts(
    library: Path, tmp_path: Path, used: str, devices: str, status: int, output: str
) -> None:
    done = wait(library, tmp_path, used, f"--devices={devices}")

    assert (done.returncode, done.stdout) == (status, output)


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library as that of this machine; returns what exists while the driver is loaded."""
    shutil.copy(library, tmp_path / "libnvidia-ml.so.1")
    (tmp_path / "used").write_text("300 9000 70", encoding="utf-8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("USED_MIB", str(tmp_path / "used"))
    return tmp_path


def test_each_rank_has_the_state_of_its_own_device(driver: Path) -> None:
    devices, problem = read_devices({"CUDA_VISIBLE_DEVICES": "1,MIG-c0ffee"}, 60, driver)
    ranks = [RankSnapshot(rank=rank, node="n", pid=9) for rank in (4, 5, 6, 7)]
    environments = {
        4: {"CUDA_VISIBLE_DEVICES": "1,MIG-c0ffee", "LOCAL_RANK": "1"},
        5: {"CUDA_VISIBLE_DEVICES": "1,0"},  # a warm rank
        6: {"LOCAL_RANK": "1"},
    }
    found = with_accelerators(ranks, environments, devices)

    assert problem == ""
    assert [one.accelerator and one.accelerator.text for one in found] == [
        "MIG-c0ffee: 70 of 80000 MiB",
        "GPU 0: 300 of 80000 MiB, utilization 97 %",
        "GPU 1: 9000 of 80000 MiB, utilization 97 %",
        None,
    ]
    assert [one.bus_id for one in devices] == ["00000000:B1:00.0", "00000000:B2:00.0", ""]


def test_a_driver_that_does_not_respond_is_stated(driver: Path, monkeypatch) -> None:
    (driver / "used").unlink()
    lost, problem = read_devices({}, 60, driver)
    assert [one.text for one in lost] == ["GPU 0: unreadable", "GPU 1: unreadable"]
    assert problem == ""
    monkeypatch.setenv("WEDGED", "1")

    assert read_devices({}, 0.5, driver) == ((), "the accelerators were not read within 0.5 s")
    assert read_devices({}, 0.5, driver / "none") == ((), "")


@pytest.mark.parametrize(
    ("utilization", "devices", "use"),
    [
        ("00", "", "idle"),
        ("01", "", "busy"),
        ("01", "0", "idle"),
        ("01", "GPU-b0", "busy"),
        ("0-", "", "unknown"),
        ("-1", "", "busy"),
        ("00", "7", "unknown"),
        ("11", "-1", "unknown"),
        ("00-", "MIG-c0ffee", "unknown"),
    ],
)
def test_accelerators_are_idle_only_if_the_utilization_of_all_visible_ones_is_known(
    library: Path, utilization: str, devices: str, use: str
) -> None:
    command = [sys.executable, "-m", "holdfast.adapters.host.accelerator_activity"]
    options = ["--samples", "1", "--library", str(library), f"--devices={devices}"]
    for environment, expected in (({}, use), ({"NO_DRIVER": "1"}, "unknown")):
        done = subprocess.run(
            [*command, *options], env={"UTILIZATION": utilization, **environment},
            capture_output=True, check=True, encoding="utf-8", timeout=60,
        )  # fmt: skip
        assert done.stdout == f'"{expected}"'


@pytest.mark.parametrize(
    ("kib", "utilization", "use"),
    [
        ("0", "00", "idle"),
        ("512", "00", "idle"),  # of each of the two directions
        ("513", "00", "busy"),
        ("513", "0-", "busy"),
        ("!", "00", "idle"),
    ],
)
def test_gpus_that_only_copy_over_nvlink_are_busy(
    library: Path, kib: str, utilization: str, use: str
) -> None:
    command = [sys.executable, "-m", "holdfast.adapters.host.accelerator_activity"]
    done = subprocess.run(
        [*command, "--samples", "1", "--library", str(library)],
        env={"UTILIZATION": utilization, "NVLINK_KIB": kib},
        capture_output=True, check=True, encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert done.stdout == f'"{use}"'


def test_the_fields_of_nvml_have_the_layout_and_the_numbers_of_its_header() -> None:
    pynvml = pytest.importorskip("pynvml")
    theirs = pynvml.c_nvmlFieldValue_t

    assert ctypes.sizeof(Field) == ctypes.sizeof(theirs)
    for own, name in (("field", "fieldId"), ("scope", "scopeId"), ("status", "nvmlReturn"),
                      ("value", "value")):  # fmt: skip
        assert getattr(Field, own).offset == getattr(theirs, name).offset
    assert (
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    ) == NVLINK_FIELDS


def test_nothing_is_waited_for_without_a_driver(library: Path, tmp_path: Path) -> None:
    assert wait(library, tmp_path, "9000 9000", NO_DRIVER="1").returncode == 0
    assert wait(tmp_path / "missing.so", tmp_path, "9000 9000").returncode == 0


def test_the_wait_ends_when_the_memory_is_released(library: Path, tmp_path: Path) -> None:
    (tmp_path / "used").write_text("9000 0", encoding="utf-8")
    command = [sys.executable, "-m", "holdfast.adapters.host.accelerator_memory"]
    waiting = subprocess.Popen(
        [*command, "--timeout", "60", "--library", str(library)],
        env={"USED_MIB": str(tmp_path / "used")},
    )
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.5)
    (tmp_path / "used").write_text("100 0", encoding="utf-8")

    assert waiting.wait(60) == 0


@pytest.mark.parametrize(
    ("used", "devices", "problem"),
    [
        ("100 100", "", ""),
        ("9000 0", "0", "holdfast: GPU memory is still in use; restarting anyway\n"),
        ("0 0", "MIG-other", "holdfast: GPU memory was not checked; restarting anyway\n"),
    ],
)
def test_a_launcher_measures_the_wait_and_says_what_it_does_not_know(
    library: Path, tmp_path: Path, monkeypatch, capfd, used: str, devices: str, problem: str
) -> None:
    shutil.copy(library, tmp_path / "libnvidia-ml.so.1")
    (tmp_path / "used").write_text(used, encoding="utf-8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("USED_MIB", str(tmp_path / "used"))

    wait = AcceleratorWait(devices, timedelta(milliseconds=10))
    deadline = time.monotonic() + 60
    while (seconds := wait.seconds()) is None and time.monotonic() < deadline:
        time.sleep(0.01)

    assert seconds is not None
    assert seconds > 0
    printed = capfd.readouterr().err
    assert printed.endswith(problem)
    assert bool(printed) == bool(problem)
