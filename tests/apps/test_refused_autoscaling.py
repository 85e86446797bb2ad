"""Groups scale themselves, and are patched, only on nodes of Kubernetes that EC2 provides."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.apps.api.autoscaling import with_autoscaling
from holdfast.apps.target import Where
from holdfast.model.clusters import (
    AutoScaling,
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
)
from holdfast.model.deployments import Patching, PatchingStrategy
from holdfast.model.sagemaker import ClusterStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCALED = DesiredCluster(
    name="lab",
    uid="0123456789ab",
    created_at=NOW,
    since=NOW,
    status=ClusterStatus.CREATING,
    autoscaling=AutoScaling(is_enabled=True),
)


def rejected(platform: str, cluster: DesiredCluster = SCALED, *, has_ec2: bool) -> list[str]:
    where = Where(platform=platform)
    return list(with_autoscaling(where, lambda _: ["another"], has_ec2=has_ec2)(cluster))


@pytest.mark.parametrize(
    ("platform", "has_ec2", "reason"),
    [
        ("local", False, "no job waits for nodes"),
        ("slurm", False, "set ResumeProgram"),
        ("slurm", True, "set ResumeProgram"),
        ("kubernetes", False, "set [ec2] in its configuration"),
    ],
)
def test_it_is_refused_with_the_reason(platform, has_ec2, reason) -> None:
    [other, problem] = rejected(platform, has_ec2=has_ec2)

    assert other == "another"
    assert problem.startswith(f"AutoScaling: --platform of the server is {platform}, and ")
    assert reason in problem
    assert problem.endswith("; set Mode to Disable")


@pytest.mark.parametrize(
    ("platform", "has_ec2", "expected"),
    [
        ("local", False, "--platform of the server is local, without [ec2]"),
        ("slurm", True, "--platform of the server is slurm, with [ec2]"),
        ("kubernetes", False, "--platform of the server is kubernetes, without [ec2]"),
    ],
)
def test_patching_is_refused_with_the_reason(platform, has_ec2, expected) -> None:
    made_of = MachineGroup(cluster="lab", name="gpu")
    patching = Patching(strategy=PatchingStrategy.WHEN_IDLE)
    group = DesiredGroup(made_of=made_of, target=1, patching=patching)
    cluster = replace(SCALED, autoscaling=None, groups=(group,))
    [_, problem] = rejected(platform, cluster, has_ec2=has_ec2)

    assert problem.startswith("InstanceGroups: gpu: AutoPatchConfig: it follows images of EC2")
    assert expected in problem
    assert rejected("kubernetes", cluster, has_ec2=True) == ["another"]
    going = replace(cluster, groups=(replace(group, stage=GroupStage.LEAVING),))
    assert rejected(platform, going, has_ec2=has_ec2) == ["another"]


@pytest.mark.parametrize("settings", [None, AutoScaling(is_enabled=False)])
def test_a_fixed_size_is_accepted_everywhere(settings) -> None:
    fixed = replace(SCALED, autoscaling=settings)

    assert rejected("local", fixed, has_ec2=False) == ["another"]
    assert rejected("kubernetes", has_ec2=True) == ["another"]
