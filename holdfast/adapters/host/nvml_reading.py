"""Reads all GPUs through NVML and writes XML in the format of ``nvidia-smi -q -x``.

``python -m holdfast.adapters.host.nvml_reading`` runs as a separate process, because a call into a
wedged driver never returns and a faulty library may crash its process. It needs the extra ``nvml``
(nvidia-ml-py) and ``libnvidia-ml.so.1``, which is part of the driver. It uses the element names and
values of nvidia-smi, so that one set of rules evaluates both. Exit status 1 means that NVML
does not respond at all.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Final
from xml.etree import ElementTree

import pynvml

Fields = Iterator[tuple[str, object]]

_RECOVERY_ACTIONS: Final = (
    "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain",
    "Bus Reset", "System Reboot",
)  # fmt: skip
"""Names by ``nvmlDeviceGpuRecoveryAction_t``."""

_FABRIC_STATES: Final = ("N/A", "Not Started", "In Progress", "Completed")
"""Names by ``nvmlGpuFabricState_t``."""

_SLOWDOWNS: Final = {
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "hw_thermal_slowdown": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hw_power_brake_slowdown": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    "sw_thermal_slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
}

_ERROR_TEXTS: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "N/A",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "N/A",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "N/A",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "N/A",
    pynvml.NVML_ERROR_NO_PERMISSION: "Insufficient Permissions",
    pynvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "GPU requires reset",
}
"""Text that nvidia-smi writes for an unavailable value; ``Unknown Error`` for other errors."""


def main() -> int:
    """Write the document. Returns the exit status."""
    try:
        pynvml.nvmlInit()
        document = _document()
    except pynvml.NVMLError as error:
        sys.stdout.write(f"Failed to initialize NVML: {error}\n")
        return 1
    ElementTree.ElementTree(document).write(sys.stdout, encoding="unicode", xml_declaration=True)
    return 0


def _document() -> ElementTree.Element:
    root = ElementTree.Element("nvidia_smi_log")
    count = pynvml.nvmlDeviceGetCount()
    _add(root, "driver_version", pynvml.nvmlSystemGetDriverVersion())
    _add(root, "attached_gpus", count)
    for index in range(count):
        gpu = ElementTree.SubElement(root, "gpu", id=f"number {index}")
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpu.set("id", pynvml.nvmlDeviceGetPciInfo(handle).busId)
        except pynvml.NVMLError as error:
            _add(gpu, "handle", _error_text(error))
            continue
        for read in _READERS:
            for path, value in read(handle):
                _add(gpu, path, value)
    return root


def _add(parent: ElementTree.Element, path: str, value: object) -> None:
    *sections, name = path.split("/")
    for section in sections:
        found = parent.find(section)
        parent = ElementTree.SubElement(parent, section) if found is None else found
    ElementTree.SubElement(parent, name).text = str(value)


def _error_text(error: pynvml.NVMLError) -> str:
    return _ERROR_TEXTS.get(error.value, "Unknown Error")


def _identity(handle: object) -> Fields:
    yield "uuid", _requested(lambda: pynvml.nvmlDeviceGetUUID(handle))
    yield "product_name", _requested(lambda: pynvml.nvmlDeviceGetName(handle))
    yield "serial", _requested(lambda: pynvml.nvmlDeviceGetSerial(handle))
    yield "vbios_version", _requested(lambda: pynvml.nvmlDeviceGetVbiosVersion(handle))


def _temperature(handle: object) -> Fields:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    yield (
        "temperature/gpu_temp",
        _requested(lambda: f"{pynvml.nvmlDeviceGetTemperature(handle, sensor)} C"),
    )


def _recovery_action(handle: object) -> Fields:
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION

    def action() -> object:
        [answer] = pynvml.nvmlDeviceGetFieldValues(handle, [field])
        if answer.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(answer.nvmlReturn)
        return _named(_RECOVERY_ACTIONS, answer.value.uiVal)

    yield "gpu_recovery_action", _requested(action)


def _ecc(handle: object) -> Fields:
    def uncorrected(kind: int) -> Callable[[], object]:
        error = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, error, kind)

    yield "ecc_errors/volatile/uncorrectable", _requested(uncorrected(pynvml.NVML_VOLATILE_ECC))
    yield "ecc_errors/aggregate/uncorrectable", _requested(uncorrected(pynvml.NVML_AGGREGATE_ECC))


def _sram(handle: object) -> Fields:
    def exceeded() -> object:
        status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
        status.version = pynvml.nvmlEccSramErrorStatus_v1
        pynvml.nvmlDeviceGetSramEccErrorStatus(handle, pynvml.byref(status))
        return _yes(status.bThresholdExceeded)

    yield "ecc_errors/aggregate/sram_threshold_exceeded", _requested(exceeded)


def _repairs(handle: object) -> Fields:
    try:
        channel, tpc = map(_yes, pynvml.nvmlDeviceGetRepairStatus(handle))
    except pynvml.NVMLError as error:
        channel = tpc = _error_text(error)
    yield "ecc_errors/channel_repair_pending", channel
    yield "ecc_errors/tpc_repair_pending", tpc
    yield (
        "ecc_errors/unrepairable_memory",
        _requested(lambda: _yes(pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle))),
    )


def _remapped_rows(handle: object) -> Fields:
    try:
        _, _, pending, failure = pynvml.nvmlDeviceGetRemappedRows(handle)
    except pynvml.NVMLError as error:
        yield "remapped_rows", _error_text(error)
        return
    yield "remapped_rows/remapped_row_pending", _yes(pending)
    yield "remapped_rows/remapped_row_failure", _yes(failure)


def _retired_pages(handle: object) -> Fields:
    yield (
        "retired_pages/pending_retirement",
        _requested(lambda: _yes(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
    )


def _slowdowns(handle: object) -> Fields:
    try:
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError as error:
        yield "clocks_event_reasons", _error_text(error)
        return
    for name, bit in _SLOWDOWNS.items():
        yield (
            f"clocks_event_reasons/clocks_event_reason_{name}",
            "Active" if reasons & bit else "Not Active",
        )


def _fabric(handle: object) -> Fields:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfo(handle, pynvml.byref(info))
    except pynvml.NVMLError as error:
        yield "fabric", _error_text(error)
        return
    state = _named(_FABRIC_STATES, info.state)
    yield "fabric/state", state
    is_done = state == "Completed"
    status = "Success" if info.status == pynvml.NVML_SUCCESS else f"error {info.status}"
    yield "fabric/status", status if is_done else "N/A"


_READERS: Final[tuple[Callable[[object], Fields], ...]] = (
    _identity,
    _temperature,
    _recovery_action,
    _ecc,
    _sram,
    _repairs,
    _remapped_rows,
    _retired_pages,
    _slowdowns,
    _fabric,
)


def _requested(query: Callable[[], object]) -> object:
    try:
        return query()
    except pynvml.NVMLError as error:
        return _error_text(error)


def _yes(flag: int) -> str:
    return "Yes" if flag else "No"


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"number {number}"


if __name__ == "__main__":
    sys.exit(main())
