"""Ray Train's ``TorchTrainer`` on a Ray instance of its own; it resumes from the last report.

Ray continues a run whose directory exists. A checkpoint counts once the controller of the run has
listed it, which may be after ``report`` returns.
"""

import tempfile
import time
from pathlib import Path

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train.torch import TorchTrainer
from saving import FOLDER, LAST, SAVES, report_resume, report_save

SNAPSHOT = FOLDER / "checkpoint_manager_snapshot.json"
WORKERS = 2


def loop():
    model, step = torch.nn.Linear(64, 64), 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        model.load_state_dict(state["model"])
        step = state["step"]
    if dist.get_rank() == 0:
        report_resume(step, model.state_dict())
    while step < LAST:
        step += 1
        torch.nn.init.normal_(model.weight)
        dist.broadcast(model.weight.data, 0)
        if step in SAVES:
            save(model, step)


def save(model, step):
    if dist.get_rank() != 0:
        train.report({"step": step})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"step": step, "model": model.state_dict()}, Path(folder, "state.pt"))
        train.report({"step": step}, train.Checkpoint.from_directory(folder))
    path = Path(train.get_checkpoint().path)
    while not SNAPSHOT.exists() or path.name not in SNAPSHOT.read_text():
        time.sleep(0.05)
    report_save(step, model.state_dict(), path.name, path / "state.pt")


def start(tries=5):
    """Start an instance of Ray, which gives its processes 30 s: too little on a busy machine."""
    while not ray.is_initialized():
        try:
            ray.init(address="local", num_cpus=WORKERS + 1, include_dashboard=False)
        except Exception:
            tries -= 1
            if not tries:
                raise
            ray.shutdown()


if __name__ == "__main__":
    start()
    TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(name=FOLDER.name, storage_path=str(FOLDER.resolve().parent)),
    ).fit()
    ray.shutdown()
