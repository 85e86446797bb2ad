"""Hugging Face Trainer on a tiny random Llama."""

import os
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

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
    output_dir=tempfile.mkdtemp(),
    max_steps=4,
    per_device_train_batch_size=2,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
data = [{"input_ids": one, "labels": one} for one in tokens]
Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data).train()
print(f"trained rank {arguments.process_index} of {arguments.world_size}", flush=True)
os._exit(0)  # Python's own exit takes a second to destroy what was imported
