"""A library with NVML's functions, which reports what variables and files say."""

import shutil
import subprocess
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
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)3;
    return strcmp(uuid, "MIG-c0ffee") == 0 ? 0 : 6;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    unsigned long long used[3] = {0, 0, 0};
    FILE *file = fopen(getenv("USED_MIB"), "r");
    if (!file || fscanf(file, "%llu %llu %llu", used, used + 1, used + 2) < 2) return 999;
    fclose(file);
    memory->used = used[(long)device - 1] << 20;
    memory->total = 80000ull << 20;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent) {
    const char *text = getenv("UTILIZATION");
    long number = (long)device;
    while (getenv("WEDGED")) {}
    percent[0] = text ? text[number - 1] - '0' : 97;
    return number == 3 || (text && text[number - 1] == '-') ? 3 : 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, char *info) {
    snprintf(info + 36, 32, "00000000:B%ld:00.0", (long)device);
    return (long)device == 3 ? 2 : 0;
}
static int sampled(void *device, int which, unsigned long long *value) {
    unsigned long long mhz, reasons;
    long count = 0;
    const char *text = getenv("CLOCKS");
    for (; text && *text; text += strcspn(text, " "), text += *text == ' ')
        if (++count == (long)device && sscanf(text, "%llu:%llx", &mhz, &reasons) == 2) {
            *value = which ? reasons : mhz;
            return 0;
        }
    return 3;
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    unsigned long long value = 0;
    int status = sampled(device, 0, &value);
    *mhz = value;
    return type == 1 ? status : 2;
}
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz) {
    *mhz = 1980;
    return type == 1 ? 0 : 2;
}
struct field {
    unsigned id, scope;
    long long time, latency;
    int type, status;
    unsigned long long kib;
};
int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    static unsigned long long moved[3];
    const char *text = getenv("NVLINK_KIB");
    if (text && text[0] == '!') return 3;
    for (struct field *one = fields; one < fields + count; one++) {
        one->status = text && (one->id == 138 || one->id == 139) && one->scope == ~0u ? 0 : 3;
        one->kib = moved[(long)device - 1];
    }
    if (text) moved[(long)device - 1] += strtoull(text, 0, 10);
    return 0;
}
int REASONS(void *device, unsigned long long *reasons) { return sampled(device, 1, reasons); }
"""


def built_nvml(folder: Path, reasons: str = "nvmlDeviceGetCurrentClocksEventReasons") -> Path:
    """Build the library of a driver whose function for throttle reasons has this name."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, built = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(NVML, encoding="utf-8")
    command = [compiler, "-shared", "-fPIC", f"-DREASONS={reasons}", "-o", built, source]
    subprocess.run(command, check=True)
    return built
