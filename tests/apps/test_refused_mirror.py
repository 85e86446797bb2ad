"""Copies of checkpoints are refused where the server cannot reach the jobs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.apps.api.checkpoint_mirror import mirror_problem
from holdfast.apps.target import Where
from holdfast.model.clusters import DesiredCluster
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.cluster_records import StoredCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORED = [
    StoredCluster(
        cluster=DesiredCluster(
            name=name,
            uid="0123456789ab",
            created_at=NOW,
            since=NOW,
            status=ClusterStatus.IN_SERVICE,
            requested=requested,
        ),
        members=(),
        version=1,
    )
    for name, requested in (
        ("none", {}),
        ("off", {"TieredStorageConfig": {"Mode": "Disable"}}),
        ("on", {"TieredStorageConfig": {"Mode": "Enable"}}),
    )
]


def problem(location: str, platform: str) -> tuple[str, list[str]]:
    """Why checkpoints cannot be copied, and what is reported."""
    reported: list[str] = []
    where = Where(platform=platform)
    return mirror_problem(location, where, lambda: STORED, reported.append), reported


@pytest.mark.parametrize("location", ["", "/mirror"])
@pytest.mark.parametrize("platform", ["kubernetes", "slurm"])
def test_jobs_of_other_platforms_name_their_location_themselves(platform, location) -> None:
    why, reported = problem(location, platform)

    assert why.startswith(f"--platform of the server is {platform}: ")
    assert "set HOLDFAST_CHECKPOINT_MIRROR " in why
    assert [one.partition(":")[0] for one in reported] == ["cluster on"]


def test_on_one_machine_only_the_location_is_needed(tmp_path: Path) -> None:
    assert problem(str(tmp_path), "local") == ("", [])
    why, [line] = problem("", "local")
    assert why.startswith("checkpoint_mirror is not set in the configuration of the server; set it")
    assert line.startswith("cluster on: checkpoints of jobs are not copied: TieredStorageConfig: ")
