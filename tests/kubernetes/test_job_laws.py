"""The laws that the matrix of jobs is judged by do catch who breaks them."""

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest
from chronicle import Change
from job_laws import monitor, untouched
from training import JOBS, ON, PODS

from holdfast.model.names import JOB_RECORD

CELL: Any = SimpleNamespace(
    group="llama",
    job=SimpleNamespace(
        collection=JOBS,
        name="llama",
        annotations=ON,
        owns=lambda labels: labels.get("job") == "llama",
    ),
)
RESTART = [
    ("pod", "a", "Running"),
    ("job", 1, "stopping", {}),
    ("pod", "a", None),
    ("job", 1, "waiting", {"hardware_retries": 1}),
    ("job", 2, "starting", {"hardware_retries": 1}),
    ("pod", "b", "Running"),
]


def changes(*steps: tuple[Any, ...]) -> list[Change]:
    """What an API server saw of one job; a pod without a phase is deleted."""
    versions = itertools.count(1)
    return [
        _job(next(versions), *s[1:]) if s[0] == "job" else _pod(next(versions), *s[1:])
        for s in steps
    ]


def _job(version: int, attempt: int, phase: str, counts: dict[str, int]) -> Change:
    record = {"attempt": attempt, "phase": phase, "hardware_retries": 0, "app_retries": 0, **counts}
    about = {"name": "llama", "annotations": {JOB_RECORD: json.dumps(record)}}
    spec = {"runPolicy": {"suspend": phase in ("stopping", "waiting", "failed")}}
    return Change(version, JOBS, False, {"metadata": about, "spec": spec})


def _pod(version: int, uid: str, phase: str | None) -> Change:
    about = {"name": f"llama-{uid}", "uid": uid, "labels": {"job": "llama"}}
    return Change(version, PODS, phase is None, {"metadata": about, "status": {"phase": phase}})


def test_a_proper_restart_keeps_every_law() -> None:
    monitor(changes(*RESTART), [CELL])


@pytest.mark.parametrize(
    ("steps", "law"),
    [
        ([one for one in RESTART if one != ("pod", "a", None)], "run at once"),
        ([*RESTART, ("job", 2, "waiting", {"hardware_retries": 2})], "stays suspended"),
        ([*RESTART, ("job", 3, "running", {"hardware_retries": 1})], "nobody paid"),
        ([*RESTART, ("job", 4, "running", {"hardware_retries": 2})], "skips an attempt"),
        ([*RESTART, ("job", 2, "failed", {"hardware_retries": 3})], "too often for its nodes"),
        ([*RESTART, ("job", 2, "failed", {"app_retries": 4})], "too often for itself"),
    ],
)
def test_a_law_that_is_broken_is_reported(steps: list[tuple[Any, ...]], law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        monitor(changes(*steps), [CELL])


def test_a_job_that_loses_a_pod_or_is_suspended_was_touched() -> None:
    untouched(changes(("pod", "a", "Running"), ("job", 1, "running", {})), CELL)
    for step, what in ((RESTART[1], "suspended"), (RESTART[2], "lost a pod")):
        with pytest.raises(AssertionError, match=what):
            untouched(changes(RESTART[0], step), CELL)
