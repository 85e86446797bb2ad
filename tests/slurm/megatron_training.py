"""A small training job that checkpoints in Megatron's layout; one process for each rank.

``python megatron_training.py FOLDER STEPS``: the value that it trains depends on every step, so
that one that was done twice, left out or read from a damaged checkpoint shows in the end. It does
not take its last step while there is a file ``hold`` in the folder.
"""

import os
import pickle
import signal
import sys
import time
import zipfile
from pathlib import Path

PAUSE_S = 0.05
EVERY = 5


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    run = os.environ["TRAINING_RUN"]
    journal = folder / "journal"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    step, value = loaded(folder, rank)
    _say(journal, f"{run} {rank} {os.environ['SLURMD_NODENAME']} begins {step}")
    while step < steps:
        while step == steps - 1 and (folder / "hold").exists():
            time.sleep(PAUSE_S)
        step += 1
        value = (value * 31 + step + rank) % 1_000_003
        time.sleep(PAUSE_S)
        _say(journal, f"{run} {rank} {os.environ['SLURMD_NODENAME']} {time.time():.3f} {step}")
        if step % EVERY == 0:
            save(folder, rank, size, step, value)
    _say(folder / "results", f"{rank} {value}")


def expected(steps: int, rank: int) -> int:
    value = rank
    for step in range(1, steps + 1):
        value = (value * 31 + step + rank) % 1_000_003
    return value


def loaded(folder: Path, rank: int) -> tuple[int, int]:
    """Step and value of a rank in the checkpoint that the tracker names."""
    tracker = folder / "latest_checkpointed_iteration.txt"
    if not tracker.exists():
        return 0, rank
    step = int(tracker.read_text(encoding="utf-8"))
    with zipfile.ZipFile(_path(folder, step, rank)) as file:
        return step, pickle.loads(file.read("archive/data.pkl"))  # noqa: S301 - its own


def _path(folder: Path, step: int, rank: int) -> Path:
    return folder / f"iter_{step:07d}/mp_rank_{rank:02d}/model_optim_rng.pt"


def save(folder: Path, rank: int, size: int, step: int, value: int) -> None:
    """Save the value of a rank; returns when the tracker names the step."""
    path = _path(folder, step, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
    if rank == 0:
        while not all(_is_whole(_path(folder, step, other)) for other in range(size)):
            time.sleep(0.01)
        tracker = folder / "latest_checkpointed_iteration.txt"
        tracker.with_suffix(".new").write_text(str(step), encoding="utf-8")
        tracker.with_suffix(".new").replace(tracker)
    else:
        while not _is_named(folder, step):
            time.sleep(0.01)


def _is_whole(path: Path) -> bool:
    return path.exists() and zipfile.is_zipfile(path)


def _is_named(folder: Path, step: int) -> bool:
    tracker = folder / "latest_checkpointed_iteration.txt"
    return tracker.exists() and int(tracker.read_text(encoding="utf-8")) >= step


def _say(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    main()
