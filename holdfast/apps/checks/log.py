"""Log of a node check, with HyperPod's lines for the checks that HyperPod has.

HyperPod writes them to ``/var/log/aws/clusters/sagemaker-deep-health-check.log``.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from io import RawIOBase
from pathlib import Path
from typing import Final

from holdfast.adapters.host.deep_checks.contract import Work
from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Remedy
from holdfast.model.node_checks import PartResult

_STRESS: Final = ("cpu", "memory", "disk")
_WORDS: Final = {Outcome.PASSED: "success", Outcome.FAILED: "failed", Outcome.UNKNOWN: "unknown"}


class CheckLog:
    """Appends a line for the start and the end of each part."""

    def __init__(self, file: RawIOBase, keep: Callable[[Callable[[], object]], bool]) -> None:
        """Write to ``file`` through ``keep``, until that returns that it failed."""
        self._file = file
        self._keep = keep
        self._is_writable = True

    def begun(self, name: str, plan: Work, left: timedelta) -> None:  # noqa: ARG002 - not logged
        """See ``Watcher.begun``."""
        program, *options = plan.argv
        if name in _STRESS:
            command = f"{Path(program).name}, and args: [{' '.join(options)}]"
            self._write(f"Executing Hardware stress check with command: {command}")

    def ended(self, result: PartResult) -> None:
        """See ``Watcher.ended``."""
        for line in _lines(result):
            self._write(line)

    def _write(self, line: str) -> None:
        text = f"{' '.join(line.split())}\n".encode()
        self._is_writable = self._is_writable and self._keep(lambda: self._file.write(text))


def _lines(result: PartResult) -> Iterator[str]:
    word = _WORDS.get(result.outcome)
    why = f": {result.detail}" if result.detail else ""
    if word is None:
        yield f"{result.name} check skipped{why}"
        return
    if result.name == "dcgm":
        yield _dcgm(result)
    if result.name == "efa-loopback":
        yield from _loopback(result)
    match result.name:
        case "cpu" | "memory" | "disk":
            yield f"{Path(result.command[0]).name} {word}{why}"
        case "gpu":
            yield f"GpuPci Count check {word}{why}"
        case "nccl" if result.outcome is Outcome.PASSED:
            yield f"Nccl test successful. Summary: {_measured(result)}"
        case "dcgm" | "efa-loopback" if result.outcome is Outcome.PASSED:
            return
        case name:
            yield f"{name} check {word}{why}"


def _loopback(result: PartResult) -> Iterator[str]:
    bad = {finding.device for finding in result.findings}
    for device, output in result.facts.items():
        word = "unknown" if result.outcome is Outcome.UNKNOWN else "passed"
        word = "failed" if device in bad else word
        yield f"EFA Loopback check {word} for device: {device} . Output summary is {output}"


def _measured(result: PartResult) -> str:
    return ", ".join(f"{name}: {value:f}" for name, value in result.measured.items())


def _dcgm(result: PartResult) -> str:
    facts = {name: result.facts.get(name, "") for name in ("version", "driver", "device_ids")}
    remedies = {finding.remedy for finding in result.findings}
    replacement, reboot = (
        str(bool(remedies & repairs)).lower()
        for repairs in ({Remedy.REPLACE}, {Remedy.REBOOT, Remedy.RESET_GPU})
    )
    return (
        f"DCGM diagnostic health summary: dcgmCheckLevel: {result.facts.get('level', '')} "
        f"dcgmVersion: {facts['version']} gpuDriverVersion: {facts['driver']}, "
        f"gpuDeviceIds: [{facts['device_ids']}] "
        f"replacementRequired: {replacement} rebootRequired:{reboot}"
    )
