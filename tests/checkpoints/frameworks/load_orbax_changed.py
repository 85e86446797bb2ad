"""Loads checkpoints of Orbax whose JSON files were changed, and prints what it made of each.

    python load_orbax_changed.py FOLDER EVERY FIRST

Saves steps with arrays on one and on several devices, arrays of NumPy, a random key and values that
are only a type, unless FIRST is above 0; then tries one of EVERY changes from there on. Each line
is JSON: the number of the change, its name, and ``loaded``, ``differs`` or ``fails``. ``aborts`` is
printed before each: JAX ends the process if a mesh has no devices.
"""

import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax_changes import FILES, changes


class Moments(NamedTuple):
    """State of an optimizer."""

    mu: jax.Array
    nu: jax.Array


def state(step):
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))

    def placed(*axes):
        spec = jax.sharding.PartitionSpec(*axes)
        return jax.device_put(jnp.full((4, 8), float(step)), jax.sharding.NamedSharding(mesh, spec))

    return {
        "layer.0": {"w": placed("data", None), "b": placed(("data", "model")), "c": placed()},
        "blocks": [{"w": jnp.ones(2, jnp.bfloat16) * step}, (jnp.zeros(2), jnp.float32(step))],
        "moments": Moments(placed(None, "model"), jnp.full(3, float(step))),
        "numbers": np.full(3, step),
        "step": step,
        "key": jax.random.key(step),
        "nothing": None,
        "empty": {},
    }


def loaded(folder):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(folder)


def plain(leaf):
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def is_equal(one, other):
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    return all(
        getattr(left, "dtype", type(left)) == getattr(right, "dtype", type(right))
        and np.array_equal(plain(left), plain(right))
        for left, right in pairs
    )


def outcome(folder, saved):
    try:
        found = loaded(folder)
    except Exception:  # noqa: BLE001 - whatever Orbax raises
        return "fails"
    return "loaded" if is_equal(found, saved) else "differs"


def write(folder):
    with ocp.CheckpointManager(folder) as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(state(step)))
            manager.wait_until_finished()


def report(number, name, made):
    sys.stdout.write(f"{json.dumps([number, name, made])}\n")
    sys.stdout.flush()


def main():
    logging.disable(logging.CRITICAL)
    folder, every, first = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    item, kept = folder / "2/default", folder.with_name("kept")
    if first == 0:
        write(folder)
        shutil.copytree(item, kept)
    shutil.copytree(kept, item, dirs_exist_ok=True)
    wholes = {file: (item / file).read_text() for file in FILES}
    saved = loaded(item)
    tried = [(file, *one) for file in FILES for one in changes(file, wholes[file])]
    for number in range(first, len(tried), every):
        file, name, text = tried[number]
        report(number, name, "aborts")
        (item / file).write_text(text)
        made = outcome(item, saved)
        (item / file).write_text(wholes[file])
        report(number, name, made)
    assert is_equal(loaded(item), saved)


main()
