"""Go compiles a package once for all programs only if all that it imports has the same versions."""

import re
from collections import defaultdict

import pytest
from source_tree import ROOT

GROUPS = (
    ("kubernetes", "node"),
    ("coredns", "etcd", "helm", "kwok", "oidc", "promtool"),
    ("mpi-operator",),  # does not compile with client-go 0.34.1
    (
        "containerd",
        "jobset",
        "kueue",
        "prometheus-operator",
        "ray-operator",
        "trainer",
        "training-operator",
    ),
)
PROGRAMS = {"github.com/kubeflow/trainer/v2", "github.com/kubeflow/training-operator"}
"""Built in one version, while Kueue needs the types of another: nothing else imports them."""

FOLDERS = sorted(path.parent.name for path in ROOT.glob("tests/controlplane/*/go.mod"))


def test_each_module_is_in_a_group() -> None:
    assert sorted(name for group in GROUPS for name in group) == FOLDERS


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_modules_of_a_group_require_the_same_versions(group: tuple[str, ...]) -> None:
    versions = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for name in group:
        text = (ROOT / "tests/controlplane" / name / "go.mod").read_text(encoding="utf-8")
        for module, version in re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE):
            versions[module][version].append(name)

    assert len(versions) > 10
    assert {
        module: dict(found)
        for module, found in versions.items()
        if len(found) > 1 and module not in PROGRAMS
    } == {}, "require the highest of them in each ('go get MODULE@VERSION'), then 'go mod tidy'"
