"""Callbacks of frameworks: the examples of docs/howto/start-frameworks.md report what they do."""

import json
import re
import sys
from pathlib import Path

import pytest

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.save_reports import read_reports

PAGE = (Path(__file__).parents[2] / "docs/howto/start-frameworks.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

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
    pytest.importorskip(framework)
    (example,) = [one for one in EXAMPLES if f"holdfast.training.{framework}" in one]
    program = tmp_path / "train.py"
    program.write_text(script.replace("EXAMPLE", example), encoding="utf-8")
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
    pytest.importorskip(framework)
    (example,) = [one for one in EXAMPLES if f"holdfast.training.{framework}" in one]
    example = re.sub(r"\bTrainer\(", replaced, example)
    said = 'print("ranks", torch.distributed.get_rank(), torch.distributed.get_world_size())\n'
    program = tmp_path / "train.py"
    program.write_text(script.replace("EXAMPLE", example) + said, encoding="utf-8")
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
