import pkgutil
from datetime import UTC, datetime
from importlib import import_module

import pytest

import holdfast.detectors
from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import KERNEL_LOG, LOGS, LogLine, Profile, Readings
from holdfast.detectors.table import ROWS, detectors, log_marks
from holdfast.model.health import Remedy

MODULES = [
    import_module(f"holdfast.detectors.{module.name}")
    for module in pkgutil.iter_modules(holdfast.detectors.__path__)
]
DETECTOR_MODULES = [module for module in MODULES if hasattr(module, "build")]


def test_every_detector_file_has_exactly_one_row() -> None:
    assert DETECTOR_MODULES
    assert sorted(row.__module__ for row in ROWS) == [
        module.__name__ for module in DETECTOR_MODULES
    ]


@pytest.mark.parametrize("profile", Profile)
def test_detectors_differ_by_name_and_declare_what_they_read(profile: Profile) -> None:
    watchers = detectors(profile)

    assert len({watcher.name for watcher in watchers}) == len(ROWS)
    for watcher in watchers:
        assert watcher.reads
        assert watcher.reads <= {KERNEL_LOG, LOGS, *SOURCES}
        assert bool(watcher.marks) == (KERNEL_LOG in watcher.reads)


@pytest.mark.parametrize("profile", Profile)
def test_no_readings_give_no_findings(profile: Profile) -> None:
    assert [watcher.detect(Readings()) for watcher in detectors(profile)] == [[] for _ in ROWS]


def test_the_marks_of_all_detectors_are_looked_for() -> None:
    watchers = detectors(Profile.HYPERPOD)

    assert log_marks(watchers) == {mark for watcher in watchers for mark in watcher.marks}
    assert "NVRM" in log_marks(watchers)


def test_another_remedy_for_a_code_reaches_the_detector_of_xids() -> None:
    line = LogLine(message="NVRM: Xid (PCI:0000:b9:00): 74, x", observed_at=datetime.now(UTC))
    readings = Readings(kernel_log=(line,))

    watchers = detectors(Profile.HYPERPOD, {74: Remedy.REBOOT})

    assert [one.remedy for watcher in watchers for one in watcher.detect(readings)] == ["reboot"]
    assert [watcher.name for watcher in watchers] == [row(Profile.HYPERPOD).name for row in ROWS]
