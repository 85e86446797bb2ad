"""Which container of a pod trains, and how it ended."""

from typing import Any

import pytest
from job_objects import a_pod, container, ended

from holdfast.adapters.kubernetes.jobs.containers import main_container


def said(message: str | None, reason: str = "Error") -> str:
    reported = ended(1, reason=reason)
    reported["terminated"]["message"] = message
    exit_ = a_pod(status=container(lastState=reported)).exit
    assert exit_ is not None
    return exit_.reason


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (None, ""),
        ("", ""),
        ("\n \n", ""),
        ("no heartbeat for 300 s\n", "no heartbeat for 300 s"),
        ("Traceback (most recent call last):\n  x\nRuntimeError: NaN\n\n", "RuntimeError: NaN"),
        ("\x1b[31mred", "[31mred"),
        ("x" * 5000, "x" * 200),
    ],
)
def test_the_last_words_of_a_container_are_why_it_ended(message: str | None, words: str):
    assert said(message) == words


def test_last_words_come_after_what_the_kubelet_calls_the_end():
    assert said("allocating 80 GiB", "OOMKilled") == "OOMKilled: allocating 80 GiB"
    assert said(None, "OOMKilled") == "OOMKilled"


@pytest.mark.parametrize(
    ("code", "known"),
    [(1, 1), (127, 127), (128, 128), (129, -1), (137, -9), (192, -64), (193, 193)],
)
def test_a_code_beyond_128_is_a_signal(code: int, known: int):
    exit_ = a_pod(phase="Failed", status=container(state=ended(code))).exit

    assert exit_ is not None
    assert exit_.code == known


def pod_of(*names: str, default: str = "") -> dict[str, Any]:
    named = {"kubectl.kubernetes.io/default-container": default} if default else None
    containers = [{"name": name} for name in names]
    return {"metadata": {"annotations": named}, "spec": {"containers": containers}}


def test_the_container_that_is_meant_is_that_of_kubectl():
    assert main_container(pod_of("a", "b")) == "a"
    assert main_container(pod_of("a", "b", default="b")) == "b"
    assert main_container(pod_of()) == ""


def test_the_container_of_the_job_s_kind_is_meant_whatever_comes_first():
    assert a_pod(annotations={"kubectl.kubernetes.io/default-container": "x"}).container == (
        "pytorch"
    )
