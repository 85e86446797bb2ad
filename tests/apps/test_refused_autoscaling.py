"""Groups scale themselves only where pods of Kubernetes wait and EC2 has machines."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.apps.api.autoscaling import with_autoscaling
from holdfast.apps.target import Where
from holdfast.model.clusters import AutoScaling, DesiredCluster
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


@pytest.mark.parametrize("settings", [None, AutoScaling(is_enabled=False)])
def test_a_fixed_size_is_accepted_everywhere(settings) -> None:
    fixed = replace(SCALED, autoscaling=settings)

    assert rejected("local", fixed, has_ec2=False) == ["another"]
    assert rejected("kubernetes", has_ec2=True) == ["another"]
