"""Ray Train v2: the manager of checkpoints that its controller runs, without a cluster of Ray.

With a second argument, loads the state of a directory instead, and prints the latest checkpoint.
"""

import asyncio
import datetime
import sys
from pathlib import Path

import numpy
from ray.train import Checkpoint, CheckpointConfig
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.training_report import _TrainingReport

START = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)


def manager(folder: Path, name: str = "run") -> tuple[CheckpointManager, StorageContext]:
    storage = StorageContext(str(folder), name)
    return CheckpointManager(CheckpointConfig(num_to_keep=3), storage), storage


async def write(folder: Path) -> None:
    own, storage = manager(folder)
    for step in (1, 2, 3):
        at = START + datetime.timedelta(minutes=step)
        name = f"checkpoint_{at:%Y-%m-%d_%H-%M-%S.%f}"
        path = folder / "run" / name
        path.mkdir(parents=True)
        for rank in range(2):
            numpy.savez(path / f"weights_{rank}.npz", weights=numpy.full(64, float(step)))
        await register(own, _checkpoint(storage, name), step)


async def register(own: CheckpointManager, checkpoint: Checkpoint, step: int) -> None:
    own.register_checkpoint(
        _TrainingReport(checkpoint=checkpoint, metrics={"step": step}, validation=False)
    )
    await asyncio.sleep(0)


def _checkpoint(storage: StorageContext, name: str) -> Checkpoint:
    path = storage.build_checkpoint_path_from_name(name)
    return Checkpoint(path, filesystem=storage.storage_filesystem)


async def loaded(folder: Path) -> str:
    return Path((manager(folder)[0])._latest_checkpoint_result.checkpoint.path).name


def main() -> None:
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        sys.stdout.write(f"{asyncio.run(loaded(folder))}\n")
    else:
        asyncio.run(write(folder))


if __name__ == "__main__":
    main()
