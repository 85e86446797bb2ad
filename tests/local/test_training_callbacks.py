"""Callbacks of frameworks: the examples of docs/howto/start-frameworks.md report what they do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from effort import variants
from installed import skip_without

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.save_reports import read_reports

PAGE = (Path(__file__).parents[2] / "docs/howto/start-frameworks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

BRIEFLY = """
import os, sys
PROGRAM
sys.stdout.flush()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
"""

LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

EXAMPLE
save = trainer.save_checkpoint
data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
trainer.fit(Tiny(), DataLoader(data, batch_size=8))
assert trainer.save_checkpoint == save, "it is restored"
"""

TRANSFORMERS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
    num_key_value_heads=1,
)
model = LlamaForCausalLM(config)
data = [{"input_ids": one, "labels": one} for one in torch.randint(0, 32, (128, 8))]
EXAMPLE
trainer.train()
"""


def briefly(program: str) -> str:
    """The program without collections of garbage, and without what Python does at its exit."""
    return BRIEFLY.replace("PROGRAM", program)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("framework", "script", "names", "losses"),
    [
        ("lightning", LIGHTNING, {4: "epoch=0-step=4.ckpt", 8: "epoch=0-step=8.ckpt"}, set()),
        (
            "transformers",
            TRANSFORMERS,
            {4: "checkpoint-4", 8: "checkpoint-8"},
            {"2", "4", "6", "8"},
        ),
    ],
)
def test_the_example_of_the_guide_reports_steps_and_checkpoints(
    framework, script, names, losses, run, tmp_path
):
    skip_without(framework)
    (example,) = [one for one in EXAMPLES if f"holdfast.training.{framework}" in one]
    program = tmp_path / "train.py"
    program.write_text(briefly(script.replace("EXAMPLE", example)), encoding="utf-8")
    folder = tmp_path / "ckpt"
    run.environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    ended = run.run(
        *("--nodes", "1", "--logs", "all", "--checkpoint-dir", str(folder)),
        *("--max-app-retries", "0", "--", sys.executable, str(program)),
        timeout=500,
        cwd=tmp_path,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {report.step: report.name for report in read_reports(folder).values()} == names
    found = CheckpointDirectory(folder).survey().checkpoints
    assert {one.name for one in found if one.reported_at is not None} == set(names.values())
    lines = run.dir.progress(1).read_text().split("\n")[:-1]
    steps = [line.split()[0] for line in lines]
    assert list(dict.fromkeys(steps)) == [str(step) for step in range(9)]
    assert {line.split()[0] for line in lines if " " in line} == losses


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("framework", "script", "replaced"),
    [
        ("lightning", LIGHTNING, 'Trainer(strategy="ddp", devices=1, num_nodes=2, '),
        ("transformers", TRANSFORMERS, "Trainer("),
    ],
    ids=["lightning", "transformers"],
)
def test_of_several_ranks_only_the_first_reports(
    framework, script, replaced, run, tmp_path
) -> None:
    skip_without(framework)
    (example,) = [one for one in EXAMPLES if f"holdfast.training.{framework}" in one]
    example = re.sub(r"\bTrainer\(", replaced, example)
    said = 'print("ranks", torch.distributed.get_rank(), torch.distributed.get_world_size())\n'
    program = tmp_path / "train.py"
    program.write_text(briefly(script.replace("EXAMPLE", example) + said), encoding="utf-8")
    folder = tmp_path / "ckpt"
    run.environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    ended = run.run(
        *("--nodes", "2", "--logs", "all", "--checkpoint-dir", str(folder)),
        *("--max-app-retries", "0", "--", sys.executable, str(program)),
        timeout=500,
        cwd=tmp_path,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert set(re.findall(r"ranks (\d) 2", ended.stdout)) == {"0", "1"}
    reports = (tmp_path / ".ckpt.holdfast-reported").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in reports] == [4, 8]
    steps = [line.split()[0] for line in run.dir.progress(1).read_text().splitlines()]
    without_loss = [
        line for line in run.dir.progress(1).read_text().splitlines() if " " not in line
    ]
    assert without_loss == [str(step) for step in range(9)]
    assert set(steps) == set(without_loss)


SKIPS = """
import os, lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from holdfast.training.lightning import HoldfastCallback

class Tiny(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        torch.nn.init.ones_(self.layer.weight)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

torch.manual_seed(1)
inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
bad = [int(one) - 1 for one in os.environ["HOLDFAST_SKIP_STEPS"].split(",")]
per_step = ACCUMULATED * 4
for one in bad:
    inputs[one * per_step : (one + 1) * per_step] = float("nan")

def trained(inputs, targets, callbacks):
    module = Tiny()
    train = module.training_step
    torch.manual_seed(2)
    trainer = lightning.Trainer(
        max_epochs=1, callbacks=callbacks, accumulate_grad_batches=ACCUMULATED, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, OPTIONS
    )
    torch.nn.init.zeros_(module.layer.bias)
    trainer.fit(module, DataLoader(TensorDataset(inputs, targets), batch_size=4))
    assert module.training_step == train, "it is restored"
    return trainer.global_step, torch.cat([one.flatten() for one in module.parameters()])

steps, weights = trained(inputs, targets, [HoldfastCallback(loss_interval=1)])
os.environ["HOLDFAST_PROGRESS_FILE"] = ""
good = [one for one in range(64) if one // per_step not in bad]
others, expected = trained(inputs[good], targets[good], [])
assert (steps, others) == (64 // per_step, 64 // per_step - len(bad)), (steps, others)
assert torch.isfinite(weights).all() and torch.equal(weights, expected), (weights, expected)
"""


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("accumulated", "options"),
    variants(
        [(1, ""), (2, ""), (1, 'strategy="ddp", devices=1, use_distributed_sampler=False')], each=3
    ),
)
def test_lightning_skips_the_batches_of_bad_steps(
    accumulated: int, options: str, tmp_path: Path
) -> None:
    skip_without("lightning")
    program = SKIPS.replace("ACCUMULATED", str(accumulated)).replace("OPTIONS", options)

    lines = ran(tmp_path, program)

    assert list(dict.fromkeys(line.split()[0] for line in lines)) == [
        str(step) for step in range(16 // accumulated + 1)
    ]
    without_loss = {line for line in lines if " " not in line}
    assert without_loss == {"0", "3", "4"}
    assert not any("nan" in line for line in lines)


DROPS = """
import os, torch
from transformers import (
    LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments,
)
from holdfast.training.transformers import HoldfastCallback

torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
    num_key_value_heads=1,
)
model = LlamaForCausalLM(config)
data = [{"input_ids": one, "labels": one} for one in torch.randint(0, 32, (128, 8))]
after = {}

class Records(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        after[state.global_step] = torch.cat([one.detach().flatten() for one in model.parameters()])

arguments = TrainingArguments(
    output_dir=os.environ["FOLDER"], max_steps=8, save_strategy="no", logging_steps=2,
    gradient_accumulation_steps=2, report_to=[], disable_tqdm=True, learning_rate=0.01,
)
callbacks = [HoldfastCallback(), Records()]
Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks).train()
same = [step for step in range(2, 9) if torch.equal(after[step], after[step - 1])]
assert same == [3, 4], same
"""


@pytest.mark.frameworks
def test_transformers_drops_the_gradients_of_bad_steps(tmp_path: Path) -> None:
    skip_without("transformers")

    lines = ran(tmp_path, DROPS)

    assert {line.split()[0] for line in lines if " " in line} == {"2", "6", "8"}
    assert {line for line in lines if " " not in line} == {str(step) for step in range(9)}


def ran(folder: Path, program: str) -> list[str]:
    """Run a program that skips steps 3 and 4; return its reports of steps."""
    progress = folder / "progress"
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "FOLDER": str(folder / "output"),
        "HOLDFAST_PROGRESS_FILE": str(progress),
        "HOLDFAST_SKIP_STEPS": "3,4",
    }
    done = subprocess.run(
        [sys.executable, "-c", briefly(program)],
        env=environment, capture_output=True, text=True, check=False, timeout=500, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return progress.read_text(encoding="utf-8").splitlines()
