"""Orbax's checkpoint manager with arrays of JAX; it loads the highest step."""

import jax
import numpy
import orbax.checkpoint as ocp
from saving import FOLDER, LAST, SAVES, report_resume, report_save


def weights():
    return {name: numpy.asarray(value) for name, value in state["model"].items()}


manager = ocp.CheckpointManager(FOLDER.resolve())
state = {"model": {"weight": jax.random.normal(jax.random.key(0), (64, 64))}, "step": 0}
if (latest := manager.latest_step()) is not None:
    state = manager.restore(latest, args=ocp.args.StandardRestore(state))
report_resume(int(state["step"]), weights())
while state["step"] < LAST:
    step = int(state["step"]) + 1
    state = {"model": {"weight": jax.random.normal(jax.random.key(step), (64, 64))}, "step": step}
    if step in SAVES:
        manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        files = (one for one in (FOLDER / str(step)).rglob("d/*") if one.is_file())
        report_save(step, weights(), str(step), max(files, key=lambda one: one.stat().st_size))
manager.close()
