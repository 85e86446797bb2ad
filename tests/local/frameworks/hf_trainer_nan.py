"""Hugging Face Trainer whose weights become NaN after 5 of 60 steps."""

import tempfile
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

config = LlamaConfig(
    vocab_size=32,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
)
model = LlamaForCausalLM(config)
tokens = [torch.randint(0, 32, (8,)) for _ in range(32)]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=60,
    logging_steps=1,
    per_device_train_batch_size=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
)


class Diverges(TrainerCallback):
    """Makes the weights NaN."""

    def on_step_end(self, args, state, control, **_) -> None:
        time.sleep(0.2)
        if state.global_step == 5:
            with torch.no_grad():
                model.lm_head.weight.fill_(float("nan"))


data = [{"input_ids": one, "labels": one} for one in tokens]
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Diverges()])
trainer.train()
