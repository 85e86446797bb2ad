"""The wait for GPU memory, against a library with NVML's functions that reads a file."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct memory { unsigned long long total, free, used; };
int nvmlInit_v2(void) { return getenv("NO_DRIVER") ? 9 : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-%c0ffee", 'a' + (int)(long)device - 1);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    unsigned long long used[2] = {0, 0};
    FILE *file = fopen(getenv("USED_MIB"), "r");
    if (!file || fscanf(file, "%llu %llu", &used[0], &used[1]) != 2) return 999;
    fclose(file);
    memory->used = used[(long)device - 1] << 20;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = folder / "nvml.c"
    source.write_text(NVML, encoding="utf-8")
    built = folder / "libnvml.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
    return built


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
        ("unreadable", "", 0, ""),
    ],
)
def test_only_the_memory_of_visible_gpus_counts(
    library: Path, tmp_path: Path, used: str, devices: str, status: int, output: str
) -> None:
    done = wait(library, tmp_path, used, "--devices", devices)

    assert (done.returncode, done.stdout) == (status, output)


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
