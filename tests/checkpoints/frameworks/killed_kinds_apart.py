"""Kinds of saves for ``killed_saves.py`` by frameworks that have an environment of their own.

Each is a function that imports its framework, once for all rounds.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from killed_kind import ITEMS, LAST, PARTS, Kind

SIZE = 256
"""Rows and columns of the weights of a layer."""


def filled(module: Any, step: int) -> None:
    for tensor in module.parameters():
        tensor.data.fill_(float(step))


def orbax() -> Kind:
    import jax.numpy  # noqa: PLC0415 - see above
    import orbax.checkpoint as ocp  # noqa: PLC0415 - see above

    def save(folder: Path) -> Iterator[int]:
        own = ocp.CheckpointManager(folder)
        for step in range(1, LAST):
            state = {f"part_{part}": jax.numpy.full(ITEMS, float(step)) for part in range(PARTS)}
            own.save(step, args=ocp.args.StandardSave(state))
            own.wait_until_finished()
            yield step

    def load(path: Path) -> Iterable[Any]:
        own = ocp.CheckpointManager(path.parent)
        assert own.latest_step() == int(path.name)
        return own.restore(int(path.name), args=ocp.args.StandardRestore()).values()

    return Kind(save, load, longest=0.3)


def torchtitan(mode: str) -> Kind:
    import torch.distributed as dist  # noqa: PLC0415 - see above
    from write_torchtitan import EVERY, manager  # noqa: PLC0415 - see above

    def save(folder: Path) -> Iterator[int]:
        dist.init_process_group("gloo")
        own, (model, _, state) = manager(folder.parent, folder.name, SIZE)
        for step in range(1, LAST):
            state.step = step
            filled(model, step)
            own.save(step)
            if step % EVERY == 0:
                own.maybe_wait_for_saving()
                yield step

    def load(path: Path) -> Iterable[Any]:
        dist.init_process_group("gloo")
        own, (model, _, state) = manager(path.parents[1], path.parent.name, SIZE)
        assert own.load()
        assert path.name == f"step-{state.step}"
        return [one.full_tensor() for one in model.parameters()]

    return Kind(save, load, inside=mode, longest=0.3, ranks=2)


def megatron_writer(*, is_async: bool) -> Callable[..., None]:
    """Fork the processes for saves of torch_dist: the first save would start new interpreters.

    Returns what waits for the end of an async save.
    """
    from megatron.core.dist_checkpointing.strategies import (  # noqa: PLC0415 - see above
        filesystem_async,
    )
    from megatron.training import async_utils  # noqa: PLC0415 - see above
    from torch import cuda, distributed  # noqa: PLC0415 - see above

    filesystem_async.get_write_results_queue("fork")
    if is_async:
        cuda.device_count, cuda.set_device = lambda: 1, lambda _: None
        async_utils.init_persistent_async_worker(distributed.get_rank(), "fork")
    return async_utils.maybe_finalize_async_save


def megatron_lm(form: str, *, is_async: bool = False) -> Kind:
    import load_megatron_lm as loading  # noqa: PLC0415 - see above
    import write_megatron_lm as writing  # noqa: PLC0415 - see above

    def prepared(folder: Path) -> tuple[Any, ...]:
        args, model, optimizer, schedule = writing.started()
        args.save = args.load = str(folder)
        args.ckpt_format, args.use_dist_ckpt = form, form != "torch"
        args.async_save = args.use_persistent_ckpt_worker = is_async
        args.async_strategy = "mcore"
        optimizer.chained_optimizers[0].__class__ = loading.Optimizer
        writing.train(model, optimizer, schedule, 0)  # makes the state of the optimizer
        return model, optimizer, schedule

    def save(folder: Path) -> Iterator[int]:
        with writing.OnCpus():
            model, optimizer, schedule = prepared(folder)
            wait = megatron_writer(is_async=is_async)
            for step in range(1, LAST):
                filled(model, step)
                writing.save_checkpoint(step, [model], optimizer, schedule, 0)
                wait(blocking=True)
                yield step

    def load(path: Path) -> Iterable[Any]:
        with writing.OnCpus():
            model, optimizer, schedule = prepared(path.parent)
            if form == "torch_dcp":
                iteration, state = loading.loaded_alone(path.parent)
                found = loading.tensors_of(state["model"])
            else:
                schedule.num_steps = 0  # a load adds to it
                with loading.torch.no_grad():
                    iteration, _ = writing.load_checkpoint([model], optimizer, schedule)
                found = list(model.parameters())
        assert path.name == f"iter_{iteration:07d}"
        return found

    return Kind(save, load, longest=3.0 if is_async else 1.5, ranks=2)  # its worker has nice 10


def composer() -> Kind:
    import torch  # noqa: PLC0415 - see above
    from composer import Callback, Trainer  # noqa: PLC0415 - see above
    from composer.models import ComposerClassifier  # noqa: PLC0415 - see above

    class Filling(Callback):
        def batch_end(self, state: Any, logger: Any) -> None:
            filled(state.model, int(state.timestamp.batch))

    def trainer(folder: Path) -> Trainer:
        model = ComposerClassifier(torch.nn.Linear(SIZE, SIZE), num_classes=SIZE)
        rows = [(torch.zeros(SIZE), torch.tensor(0))] * LAST
        return Trainer(
            model=model, optimizers=torch.optim.AdamW(model.parameters()),
            train_dataloader=torch.utils.data.DataLoader(rows), max_duration=f"{LAST}ba",
            run_name="killed", autoresume=True, save_folder=str(folder), save_interval="1ba",
            callbacks=[Filling()], device="cpu", progress_bar=False,
        )  # fmt: skip

    def save(folder: Path) -> Iterator[int]:
        trainer(folder).fit()
        yield LAST

    def load(path: Path) -> Iterable[Any]:
        own = trainer(path.parent)
        assert path.name == f"ep0-ba{int(own.state.timestamp.batch)}-rank0.pt"
        return own.state.model.parameters()

    return Kind(save, load, longest=0.3)


def dlrover() -> Kind:
    import torch  # noqa: PLC0415 - see above
    from write_dlrover import checkpointer, save_and_wait  # noqa: PLC0415 - see above

    def run_of(folder: Path, what: str) -> str:
        """Name of DLRover's sockets and shared memory, which a load must not share."""
        return f"{os.getppid()}-{folder.parent.name}-{what}"

    def save(folder: Path) -> Iterator[int]:
        os.environ["TORCHELASTIC_RUN_ID"] = run_of(folder, "save")
        own = checkpointer(folder)
        for step in range(1, LAST):
            state = {f"part_{part}": torch.full((ITEMS,), float(step)) for part in range(PARTS)}
            save_and_wait(own, folder, step, {"step": step, "model": state})
            yield step

    def load(path: Path) -> Iterable[Any]:
        os.environ["TORCHELASTIC_RUN_ID"] = run_of(path.parent, "load")
        state = checkpointer(path.parent).load_checkpoint()
        assert path.name == str(state["step"])
        return state["model"].values()

    def clean(folder: Path) -> None:
        name = f"{os.getpid()}-{folder.parent.name}-*"
        for one in Path("/dev/shm").glob(f"*{name}"):
            one.unlink()
        for one in Path("/tmp/ckpt_sock").glob(name):
            shutil.rmtree(one)

    return Kind(save, load, longest=0.3, clean=clean)


def ray() -> Kind:
    import numpy  # noqa: PLC0415 - see above
    from ray.train import Checkpoint  # noqa: PLC0415 - see above
    from write_ray_train import manager, register  # noqa: PLC0415 - see above

    def save(folder: Path) -> Iterator[int]:
        own, storage = manager(folder.parent, folder.name)
        for step in range(1, LAST):
            name = f"checkpoint_{step:06d}"
            with tempfile.TemporaryDirectory() as made:
                for part in range(PARTS):
                    state = numpy.full(ITEMS, float(step))
                    numpy.savez(Path(made, f"part_{part}.npz"), state=state)
                kept = storage.persist_current_checkpoint(Checkpoint(made), name)
            asyncio.run(register(own, kept, step))
            yield step

    def load(path: Path) -> Iterable[Any]:
        result = manager(path.parents[1], path.parent.name)[0]._latest_checkpoint_result
        assert Path(result.checkpoint.path) == path
        assert path.name == f"checkpoint_{result.metrics['step']:06d}"
        return [numpy.load(one)["state"] for one in path.glob("*.npz")]

    def is_asked(folder: Path) -> bool:
        """Ray writes its list in place: a kill in between leaves an empty one."""
        return (folder / "checkpoint_manager_snapshot.json").stat().st_size == 0

    return Kind(save, load, is_asked=is_asked)


KINDS: dict[str, Callable[[], Kind]] = {
    "orbax": orbax,
    "torchtitan": partial(torchtitan, "disabled"),
    "torchtitan_async": partial(torchtitan, "async"),
    "megatron_lm_torch_dist": partial(megatron_lm, "torch_dist"),
    "megatron_lm_torch_dist_async": partial(megatron_lm, "torch_dist", is_async=True),
    "megatron_lm_torch_dcp": partial(megatron_lm, "torch_dcp"),
    "megatron_lm_torch": partial(megatron_lm, "torch"),
    "composer": composer,
    "dlrover": dlrover,
    "ray": ray,
}
