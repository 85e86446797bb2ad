"""Hugging Face Trainer, on two ranks, and with a model in several safetensors files."""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = (torch.arange(8) + index) % 32
        return {"input_ids": row, "labels": row}


class Sharded(Trainer):
    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        for file in Path(output_dir).glob("model*.safetensors"):
            file.unlink()
        self.model.save_pretrained(output_dir, state_dict=state_dict, max_shard_size=8000)


def main() -> None:
    folder = Path(sys.argv[1])
    shape = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    for kind, trainer in (("one_file", Trainer), ("sharded", Sharded)):
        arguments = TrainingArguments(
            output_dir=str(folder / kind), max_steps=6, save_steps=2, save_total_limit=2,
            per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        model = LlamaForCausalLM(LlamaConfig(**shape, **heads, max_position_embeddings=16))
        trainer(model=model, args=arguments, train_dataset=Numbers()).train()


if __name__ == "__main__":
    main()
