"""A GPT with the distributed optimizer, saved by Megatron-LM's own ``save_checkpoint`` on CPUs.

``load_megatron_lm.py`` loads it with ``load_checkpoint``.

Megatron-core has ``megatron.training`` from 0.19 on, for Python 3.12 and later.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

torch.cuda.synchronize = lambda *_: None
torch.cuda.current_device = lambda: "cpu"
torch.cuda.get_rng_state = torch.get_rng_state
torch.cuda.set_rng_state = torch.set_rng_state

from megatron.core import num_microbatches_calculator as microbatches  # noqa: E402 - they keep
from megatron.core import parallel_state, tensor_parallel  # noqa: E402 - what they import
from megatron.core.distributed import DistributedDataParallel  # noqa: E402
from megatron.core.distributed import DistributedDataParallelConfig as DataParallel  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer  # noqa: E402, F401
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.training import global_vars  # noqa: E402
from megatron.training.arguments import parse_args  # noqa: E402
from megatron.training.checkpointing import load_checkpoint, save_checkpoint  # noqa: E402, F401

RANKS = 2
KINDS = ("torch_dist", "torch_dcp", "torch")


class OnCpus(TorchFunctionMode):
    """Creates on CPUs what Megatron-core creates on GPUs, where it looks for its parameters."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        found = function(*args, **kwargs)
        is_name = function is torch.Tensor.type and isinstance(found, str)
        return found.replace("torch.", "torch.cuda.") if is_name else found


def arguments() -> Any:
    """Megatron-LM's arguments, without those of the command line."""
    given, sys.argv = sys.argv, sys.argv[:1]
    args = parse_args(ignore_unknown_args=True)
    sys.argv = given
    args.tensor_model_parallel_size = RANKS
    args.use_distributed_optimizer = True
    global_vars.set_args(args)
    microbatches.init_num_microbatches_calculator(dist.get_rank(), None, 1, 1, 1)
    return args


def started() -> tuple[Any, Any, Any, Any]:
    """The arguments, the model, its optimizer and its schedule, on each rank."""
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
    states = {"model-parallel-rng": torch.get_rng_state()}
    tensor_parallel.get_cuda_rng_tracker().set_states(states)
    return (arguments(), *model_and_optimizer())


def model_and_optimizer() -> tuple[Any, Any, Any]:
    config = TransformerConfig(
        num_layers=1, hidden_size=8, num_attention_heads=2, tensor_model_parallel_size=RANKS,
        use_cpu_initialization=True,
    )  # fmt: skip
    gpt = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=16, max_sequence_length=8)
    wrapped = DistributedDataParallel(config, DataParallel(use_distributed_optimizer=True), gpt)
    adam = OptimizerConfig(optimizer="adam", lr=0.1, min_lr=0.0, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(adam, [wrapped])
    schedule = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=0.1, min_lr=0.0, lr_warmup_steps=10, lr_decay_steps=1000,
        lr_decay_style="linear", start_wd=0.0, end_wd=0.0, wd_incr_steps=1000,
        wd_incr_style="constant",
    )  # fmt: skip
    return wrapped, optimizer, schedule


def train(model: Any, optimizer: Any, schedule: Any, seed: int) -> None:
    """One step with random weights and gradients."""
    torch.manual_seed(seed + dist.get_rank())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
        torch.nn.init.normal_(parameter.main_grad)
    optimizer.step()
    schedule.step(1)


def main() -> None:
    folder = Path(sys.argv[1])
    args, model, optimizer, schedule = started()
    for kind in KINDS:
        args.ckpt_format, args.use_dist_ckpt = kind, kind != "torch"
        args.save = str(folder / kind)
        for step in (100, 200, 300):
            train(model, optimizer, schedule, step)
            save_checkpoint(step, [model], optimizer, schedule, 0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with OnCpus():
        main()
