"""Clocks of GPUs and the reasons for them, against a library with NVML's functions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch.nvml_library import built_nvml

from holdfast.adapters.host.accelerator_clocks import read_clocks
from holdfast.adapters.host.accelerator_memory import NVML
from holdfast.decisions.rank_slowdowns import GpuClock, RankUse

OLD = "nvmlDeviceGetCurrentClocksThrottleReasons"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "used").write_text("0 0", encoding="utf-8")
    monkeypatch.setenv("USED_MIB", str(tmp_path / "used"))


def test_each_rank_has_the_clocks_of_its_own_gpu(library: Path, monkeypatch) -> None:
    monkeypatch.setenv("CLOCKS", "1755:4 1095:48")
    environments = {4: {"CUDA_VISIBLE_DEVICES": "1,0"}, 5: {"LOCAL_RANK": "0"}, 6: {}}

    found = read_clocks(str(library), environments, samples=2, seconds=0.01)

    assert found == {
        4: RankUse(gpu="GPU 1", limit_mhz=1980, clocks=(GpuClock(mhz=1095, reasons=0x48),) * 2),
        5: RankUse(gpu="GPU 0", limit_mhz=1980, clocks=(GpuClock(mhz=1755, reasons=0x4),) * 2),
    }


@pytest.mark.parametrize(("reasons", "samples"), [(OLD, 1), ("unknown", 0)])
def test_an_older_driver_has_another_name_for_the_reasons(
    tmp_path: Path, monkeypatch, reasons: str, samples: int
) -> None:
    monkeypatch.setenv("CLOCKS", "1755:4")

    [found] = read_clocks(str(built_nvml(tmp_path, reasons)), {0: {}}, 1, 0).values()

    assert len(found.clocks) == samples


def test_a_gpu_without_clocks_and_a_machine_without_a_driver_have_no_samples(
    library: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CLOCKS", "1755:4")
    assert read_clocks(str(library), {1: {"LOCAL_RANK": "1"}}, 2, 0)[1].clocks == ()
    monkeypatch.setenv("NO_DRIVER", "1")
    assert read_clocks(str(library), {0: {}}, 2, 0) == {}
    assert read_clocks("no-nvml.so", {0: {}}, 2, 0) == {}


def test_a_driver_that_does_not_respond_is_stated(library: Path) -> None:
    command = [sys.executable, "-m", "holdfast.adapters.host.rank_slowdowns", "--seconds=0.1",
               "--driver-seconds=0.1", f"--library={library}", "0", f"0:{os.getpid()}"]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "WEDGED": "1"}, capture_output=True, check=True, timeout=60
    )

    assert json.loads(done.stdout).endswith("NVML did not respond within 0.2 s")


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/proc/driver/nvidia").exists(), reason="no driver of NVIDIA")
def test_a_real_gpu_has_clocks_below_its_limit() -> None:
    [found] = read_clocks(NVML, {0: {}}, samples=2, seconds=0.1).values()

    assert found.limit_mhz is not None
    assert found.clocks
    assert all(0 < clock.mhz <= found.limit_mhz for clock in found.clocks)
