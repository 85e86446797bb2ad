"""A supervised step waits for a person before it resumes from a checkpoint that is too old."""

import os
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised_cluster import Supervised, supervised_cluster

from holdfast.apps.main import run
from tests.engines.slurm_cluster import SlurmPrograms

TRACKER = "latest_checkpointed_iteration.txt"
OLD = 1_700_000_000


@pytest.fixture(scope="module")
def cluster(
    programs: SlurmPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervised]:
    with supervised_cluster(programs, tmp_path_factory.mktemp("supervised")) as cluster:
        yield cluster


def saved(folder: Path, number: int) -> Path:
    """A checkpoint in Megatron's older format."""
    path = folder / f"iter_{number:07d}/mp_rank_00/model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(number, protocol=2))
    (folder / TRACKER).write_text(str(number), encoding="utf-8")
    return path


def test_a_step_begins_once_a_person_has_accepted_the_rollback(cluster: Supervised) -> None:
    folder = cluster.prefix / "checkpoints"
    old = saved(folder, 1)
    for path in (old, old.parent, old.parent.parent):
        os.utime(path, (OLD, OLD))
    saved(folder, 2).write_bytes(b"not an archive" * 100)

    job = cluster.submit("-N1", f"--comment=checkpoint={folder}",
                         script=f"srun --auto-resume=1 true; cat {folder / TRACKER}")  # fmt: skip
    accepting = f"accept with: holdfast checkpoint choose {folder} iter_0000001"
    cluster.until_said(job, accepting)
    assert (folder / TRACKER).read_text(encoding="utf-8") == "2"
    assert run(["checkpoint", "choose", str(folder), "iter_0000001"]) == 0

    output = cluster.ended(job)
    assert output.count(accepting) == 1
    assert "iter_0000001 is selected by a person and complete" in output
    assert output.splitlines()[-1] == "1"
    assert (cluster.prefix / "checkpoints.set-aside/iter_0000002").is_dir()
