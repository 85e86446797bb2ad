"""Ranks of JAX that meet through what a launcher sets; rank 1 fails in the first round."""

import os

import jax
import numpy as np
from jax.experimental import multihost_utils

jax.distributed.initialize(
    num_processes=int(os.environ["WORLD_SIZE"]), process_id=int(os.environ["RANK"])
)
own = np.array([jax.process_index() + 1])
every = multihost_utils.process_allgather(own).ravel().tolist()
print(
    f"rank {os.environ['RANK']} is {jax.process_index()} of {jax.process_count()}: {every}",
    flush=True,
)
if os.environ["HOLDFAST_LAUNCH_ROUND"] == "1" and os.environ["RANK"] == "1":
    os._exit(5)  # as a crash, without the barrier at the end
