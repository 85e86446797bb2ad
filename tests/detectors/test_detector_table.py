import ast
import inspect
import pkgutil
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module

import pytest

import holdfast.detectors
from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import KERNEL_LOG, LOGS, Detector, LogLine, Profile, Readings
from holdfast.detectors.table import ROWS, detectors, log_keywords, reasons
from holdfast.model.health import Remedy
from holdfast.model.names import AGENT_CONDITIONS, Reason

MODULES = [
    import_module(f"holdfast.detectors.{module.name}")
    for module in pkgutil.iter_modules(holdfast.detectors.__path__)
]
DETECTOR_MODULES = [module for module in MODULES if hasattr(module, "build")]


def test_every_detector_file_has_exactly_one_row() -> None:
    assert DETECTOR_MODULES
    files = Counter(module.__name__ for module in DETECTOR_MODULES)
    rows = Counter(row.__module__ for row in ROWS)

    assert rows == files, f"add to ROWS in detectors/table.py, once: {files - rows} {rows - files}"


def test_every_sample_has_one_detector() -> None:
    """Two would end each other's notice that it cannot be read; extend the one there is."""
    readers = Counter(
        name for one in detectors(Profile.HYPERPOD) for name in one.reads - {KERNEL_LOG}
    )

    assert [name for name, count in readers.items() if count > 1] == [], (
        "samples with several detectors: extend the detector there is, or read another sample"
    )


def test_detectors_set_only_conditions_that_the_admission_policy_allows() -> None:
    code = "\n".join(inspect.getsource(module) for module in MODULES)
    named = set(re.findall(r"\bCondition\.([A-Z_]+)", code))

    refused = named - {condition.name for condition in AGENT_CONDITIONS}
    assert refused == set(), "only the controller sets these: see model/names/conditions.py"


@pytest.mark.parametrize("profile", Profile)
def test_detectors_differ_by_name_and_declare_what_they_read(profile: Profile) -> None:
    watchers = detectors(profile)

    assert len({watcher.name for watcher in watchers}) == len(ROWS)
    for watcher in watchers:
        assert watcher.reads
        assert watcher.reads <= {KERNEL_LOG, LOGS, *SOURCES}
        assert bool(watcher.keywords) == (KERNEL_LOG in watcher.reads)


JUDGES = {
    "gpu-dcgm-diag": "gpu_dcgm",
    "neuron-ls": "neuron_state",
    "neuron-monitor": "neuron_state",
    "efa-devices": "network_tools",
    "infiniband-ports": "network_tools",
}
"""The detectors that share a file with others, by which they are judged."""

OF_STATE = {
    watcher.name: f"holdfast.detectors.{JUDGES.get(watcher.name, watcher.name.replace('-', '_'))}"
    for watcher in detectors(Profile.HYPERPOD)
    if KERNEL_LOG not in watcher.reads
}


def named_outside_state_reasons(file: str) -> set[str]:
    """Names of the reasons in the code of a file, apart from the rows of ``STATE_REASONS``."""
    module = ast.parse(inspect.getsource(import_module(file)))
    code = [one for one in module.body if "STATE_REASONS: Final" not in ast.unparse(one)]
    return set(re.findall(r"\bReason\.([A-Z0-9_]+)", "\n".join(map(ast.unparse, code))))


@pytest.mark.parametrize("file", sorted({*OF_STATE.values()}))
def test_the_reasons_of_detectors_of_state_are_those_that_their_files_name(file: str) -> None:
    names = {name for name, one in OF_STATE.items() if one == file}
    rows = [row for one in detectors(Profile.HYPERPOD) if one.name in names
            for row in one.state_reasons]  # fmt: skip
    listed, used = {row.reason.name for row in rows}, named_outside_state_reasons(file)

    assert listed == used, f"STATE_REASONS of {names}: add {used - listed}, drop {listed - used}"


@pytest.mark.parametrize("detector", detectors(Profile.HYPERPOD), ids=lambda one: one.name)
def test_every_reason_of_a_detector_has_one_row(detector: Detector) -> None:
    kinds = [replace(row, source="") for row in detector.state_reasons]
    assert len(set(kinds)) == len(kinds)


def test_an_agent_may_say_what_its_detectors_say_and_no_more() -> None:
    watchers = {watcher.name: watcher for watcher in detectors(Profile.HYPERPOD)}
    disk, xid = watchers["disk-state"], watchers["gpu-xid"]

    own = {Reason.DETECTOR_FAILED, Reason.DRILL_ACTIVE, Reason.FAULTS_OMITTED}
    assert reasons(()) == own
    assert reasons((disk,)) == {
        *own,
        Reason.SOURCE_FAILED,
        Reason.READONLY_FILESYSTEM,
        Reason.DISK_FULL,
        Reason.INODES_EXHAUSTED,
    }
    assert {Reason.XID_REPLACE, Reason.XID_RECOVERY_ACTION} <= reasons((xid,))
    assert watchers["gpu-dcgm-policy"].reasons >= {*xid.reasons, Reason.GPU_THERMAL}
    everything = reasons(tuple(watchers.values()))
    assert everything.isdisjoint({Reason.JOB_HUNG, Reason.NODE_LOST, Reason.REQUESTED_REBOOT})


@pytest.mark.parametrize("profile", Profile)
def test_no_readings_give_no_findings(profile: Profile) -> None:
    assert [watcher.detect(Readings()) for watcher in detectors(profile)] == [[] for _ in ROWS]


def test_the_marks_of_all_detectors_are_looked_for() -> None:
    watchers = detectors(Profile.HYPERPOD)

    assert log_keywords(watchers) == {
        keyword for watcher in watchers for keyword in watcher.keywords
    }
    assert "NVRM" in log_keywords(watchers)


def test_another_remedy_for_a_code_reaches_the_detector_of_xids() -> None:
    line = LogLine(message="NVRM: Xid (PCI:0000:b9:00): 74, x", observed_at=datetime.now(UTC))
    readings = Readings(kernel_log=(line,))

    watchers = detectors(Profile.HYPERPOD, {74: Remedy.REBOOT})

    assert [one.remedy for watcher in watchers for one in watcher.detect(readings)] == ["reboot"]
    assert [watcher.name for watcher in watchers] == [row(Profile.HYPERPOD).name for row in ROWS]
