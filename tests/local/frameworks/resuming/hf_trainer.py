"""Hugging Face Trainer on a tiny random Llama; ``resume_from_checkpoint=True``."""

import os

import torch
from saving import FOLDER, LAST, SAVES, report_resume, report_save
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Reports(TrainerCallback):
    """Reports a save at the begin of the next step, when the weights are still those."""

    def on_train_begin(self, args, state, control, model=None, **_):
        report_resume(state.global_step, model.state_dict())

    def on_step_begin(self, args, state, control, model=None, **_):
        if (step := state.global_step) in SAVES:
            name = f"checkpoint-{step}"
            report_save(step, model.state_dict(), name, FOLDER / name / "model.safetensors")


config = LlamaConfig(
    vocab_size=32,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
)
tokens = [torch.randint(0, 32, (8,)) for _ in range(32)]
arguments = TrainingArguments(
    output_dir=str(FOLDER),
    max_steps=LAST,
    per_device_train_batch_size=2,
    use_cpu=True,
    report_to=[],
    save_strategy="steps",
    save_steps=SAVES[0],
    disable_tqdm=True,
)
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=[{"input_ids": one, "labels": one} for one in tokens],
    callbacks=[Reports()],
)
trainer.train(resume_from_checkpoint=any(FOLDER.glob("checkpoint-*")) or None)
os._exit(0)  # Python's own exit takes a second to destroy what was imported
