"""Trains a character model with PyTorch DDP: ``torchrun -m holdfast.apps.demo.train_torch``.

The same job as ``train_numpy``, on the CPU with gloo. The weights after the last step are bitwise
equal, however often the job was interrupted.
"""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO

if __name__ == "__main__":
    gc.disable()  # until the model is built: next to nothing of 2,000 imported modules is garbage

try:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as missing:
    sys.stderr.write(f"{missing.name} is not installed: pip install 'holdfast[torch]'\n")
    raise SystemExit(2) from None

from holdfast.apps.demo.corpus import CONTEXT, SYMBOLS, Batch, Corpus, standard_library
from holdfast.apps.demo.options import Options, RankEnvironment, parse_options, rank_environment
from holdfast.apps.demo.replica import PeerLost
from holdfast.apps.demo.training_loop import run_trainer, train

EMBEDDING = 24
LEARNING_RATE = 0.002


class TorchReplica:
    """The model on one rank; see ``Replica``. The process group must have been initialized."""

    def __init__(self, corpus: Corpus, options: Options, environment: RankEnvironment) -> None:
        self._corpus = corpus
        self._options = options
        self._environment = environment
        torch.manual_seed(options.seed)
        self._model = torch.nn.Sequential(
            torch.nn.Embedding(SYMBOLS, EMBEDDING),
            torch.nn.Flatten(),
            torch.nn.Linear(CONTEXT * EMBEDDING, options.hidden),
            torch.nn.Tanh(),
            torch.nn.Linear(options.hidden, SYMBOLS),
        )
        with _peer_errors():
            self._parallel = DistributedDataParallel(self._model)
        self._parallel.register_comm_hook(environment.world_size, _sum_in_rank_order)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE)

    def train(self, step: int) -> float:
        """Run one step of Adam on the mean gradient of all ranks; return its loss."""
        batch = self._corpus.batch(
            seed=self._options.seed,
            step=step,
            size=self._options.batch,
            rank=self._environment.rank,
            world_size=self._environment.world_size,
        )
        self._optimizer.zero_grad()
        loss = _summed_loss(self._parallel, batch) / self._options.batch
        loss.backward()
        self._optimizer.step()
        mean = loss.detach()
        with _peer_errors():
            dist.all_reduce(mean)
        return float(mean)

    def broadcast(self, payload: bytes) -> bytes:
        """Broadcast the payload of rank 0 to all ranks."""
        box = [payload]
        with _peer_errors():
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def state(self) -> bytes:
        """Return the state of model and optimizer as ``torch.save`` writes it."""
        buffer = BytesIO()
        torch.save((self._model.state_dict(), self._optimizer.state_dict()), buffer)
        return buffer.getvalue()

    def restore(self, state: bytes) -> None:
        """Load a state that ``state`` returned."""
        model, optimizer = torch.load(BytesIO(state), weights_only=True)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)

    def weights(self) -> bytes:
        """Return all parameters in the order of the layers, float32 in native byte order."""
        flat = torch.cat([weight.detach().flatten() for weight in self._model.parameters()])
        content: bytes = flat.numpy().tobytes()
        return content

    def held_out_loss(self) -> float:
        """Return the mean cross-entropy of held-out text, in nats per character."""
        with torch.no_grad():
            batch = self._corpus.held_out_batch()
            return float(_summed_loss(self._model, batch)) / len(batch.targets)


def main(arguments: Sequence[str]) -> None:
    """Join the process group and train."""
    options = parse_options(
        "holdfast.apps.demo.train_torch", "Train with PyTorch DDP.", arguments, os.environ
    )
    environment = rank_environment(os.environ)
    torch.set_num_threads(1)  # two ranks share two cores
    torch.use_deterministic_algorithms(mode=True)
    corpus = standard_library()
    with _process_group(environment, options.join_timeout, options.peer_timeout):
        replica = TorchReplica(corpus, options, environment)
        gc.freeze()  # no collection visits what PyTorch keeps
        gc.enable()
        train(replica, options, environment, options.run_identity("torch", corpus))


@contextmanager
def _process_group(
    environment: RankEnvironment, join_timeout: timedelta, peer_timeout: timedelta
) -> Iterator[None]:
    rank, world_size = environment.rank, environment.world_size
    with _peer_errors("cannot join the other ranks"):
        if world_size == 1:
            store = dist.HashStore()
        else:
            meeting = dist.rendezvous("env://", rank, world_size, timeout=join_timeout)
            store, rank, world_size = next(meeting)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world_size, timeout=peer_timeout
        )
    yield
    dist.destroy_process_group()  # not after a failure: it could wait for dead ranks


@contextmanager
def _peer_errors(what: str = "lost the other ranks") -> Iterator[None]:
    """Raise PeerLost for the plain RuntimeErrors of PyTorch when it cannot reach a rank."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise PeerLost(f"{what}: {reason}; restart all ranks") from error


def _sum_in_rank_order(
    world_size: int, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Communication hook of DDP: sum the gradients of all ranks in the order of the ranks.

    The all-reduce of gloo sums each part of a bucket in another order, and DDP rebuilds its buckets
    after the first step: resumed jobs of three and more ranks would differ.
    """
    own = bucket.buffer()
    parts = [torch.empty_like(own) for _ in range(world_size)]
    with _peer_errors():
        dist.all_gather(parts, own)
    total = parts[0]
    for part in parts[1:]:
        total += part
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(total)
    return done


def _summed_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    scores = model(torch.from_numpy(np.ascontiguousarray(batch.contexts)))
    targets = torch.from_numpy(np.ascontiguousarray(batch.targets))
    return torch.nn.functional.cross_entropy(scores, targets, reduction="sum")


if __name__ == "__main__":
    code = run_trainer(main)
    sys.stdout.flush()
    os._exit(code)  # Python's own exit takes a second to destroy the modules of PyTorch
