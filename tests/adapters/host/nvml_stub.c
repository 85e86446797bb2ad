/* A libnvidia-ml.so.1 for tests: two GPUs, in the state that NVML_STUB names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct {
    unsigned field, scope;
    long long time, latency;
    unsigned type, result;
    union { double d; unsigned ui; unsigned long long ull; } value;
} Field;
typedef struct { unsigned char uuid[16]; unsigned status, clique, state; } Fabric;
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } Sram;
typedef struct { unsigned version, channel, tpc; } Repair;
typedef struct { unsigned version, unrepairable; } Unrepairable;

static int is(const char *state) {
    const char *now = getenv("NVML_STUB");
    return now && strcmp(now, state) == 0;
}

static int is_bad(void *gpu) { return gpu == (void *)2 && is("faulty"); }

int nvmlInitWithFlags(unsigned flags) { return is("no-driver") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { return "an error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "570.86.15");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if (index == 1 && is("lost")) return GPU_IS_LOST;
    *gpu = (void *)(unsigned long)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *gpu, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%s:00.0", gpu == (void *)1 ? "A8" : "B9");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *gpu, char *text, unsigned size) {
    if (is("hang")) sleep(1000);
    if (is("abort")) abort();
    snprintf(text, size, "GPU-%lu", (unsigned long)gpu);
    return SUCCESS;
}

int nvmlDeviceGetName(void *gpu, char *text, unsigned size) {
    snprintf(text, size, "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetVbiosVersion(void *gpu, char *text, unsigned size) {
    snprintf(text, size, "96.00.89.00.01");
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius) {
    *celsius = 41;
    return is("old") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetFieldValues(void *gpu, int count, Field *fields) {
    fields[0].result = is("old") ? NOT_SUPPORTED : SUCCESS;
    fields[0].value.ui = is_bad(gpu) || is("old") ? 2 : 0;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *gpu, int error, int counter, unsigned long long *count) {
    if (is("old")) return NOT_SUPPORTED;
    *count = counter == 1 ? 7 : is_bad(gpu) ? 3 : 0; /* 1: over the whole life */
    return SUCCESS;
}

int nvmlDeviceGetSramEccErrorStatus(void *gpu, Sram *status) {
    status->exceeded = is_bad(gpu);
    return is("unknown") ? UNKNOWN : SUCCESS;
}

int nvmlDeviceGetRepairStatus(void *gpu, Repair *status) {
    status->channel = is_bad(gpu);
    status->tpc = 0;
    return SUCCESS;
}

int nvmlDeviceGetUnrepairableMemoryFlag_v1(void *gpu, Unrepairable *flag) {
    flag->unrepairable = 0;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(
    void *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure
) {
    if (is("old")) return NOT_SUPPORTED;
    *corrected = *uncorrected = 0;
    *pending = *failure = is_bad(gpu);
    return SUCCESS;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *gpu, unsigned *pending) {
    *pending = is_bad(gpu);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *reasons) {
    *reasons = is_bad(gpu) ? 0x40 | 0x80 : 0x1;
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfo(void *gpu, Fabric *info) {
    info->state = 3;
    info->status = is_bad(gpu) ? 1 : 0;
    return is("old") ? NOT_SUPPORTED : SUCCESS;
}
