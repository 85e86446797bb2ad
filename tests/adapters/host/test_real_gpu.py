"""A machine with a healthy GPU of NVIDIA gives no finding. What nvidia-smi and NVML say of it is
in test_state_detectors and in test_nvml_reading."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.adapters.host.kmsg import open_kmsg
from holdfast.detectors.contract import Profile, Readings
from holdfast.detectors.table import detectors, log_keywords
from holdfast.model.health import Remedy

KMSG = Path("/dev/kmsg")


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/proc/driver/nvidia").exists(), reason="no driver of NVIDIA")
@pytest.mark.skipif(not os.access(KMSG, os.R_OK), reason="the kernel's log cannot be read")
def test_the_kernel_log_of_a_healthy_gpu_calls_for_nothing() -> None:
    watchers = [one for one in detectors(Profile.HYPERPOD) if one.name.startswith("gpu-")]
    device = open_kmsg(KMSG, log_keywords(tuple(watchers)), None)
    try:
        lines = tuple(device.read(datetime.now(UTC)))
    finally:
        device.close()

    found = [one for watcher in watchers for one in watcher.detect(Readings(kernel_log=lines))]

    assert [one.message for one in found if one.remedy is not Remedy.NONE] == []
