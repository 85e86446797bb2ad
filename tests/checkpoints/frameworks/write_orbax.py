"""Orbax: a CheckpointManager with one item and with several."""

import sys
from pathlib import Path

import jax
import orbax.checkpoint as ocp


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    weights = {"layer": {"w": jax.random.normal(jax.random.key(0), (16, 16))}, "step": 0}
    one = ocp.CheckpointManager(folder / "one_item")
    names = ("state", "data")
    several = ocp.CheckpointManager(folder / "items", item_names=names)
    for step in (1, 2, 3):
        state = {**weights, "step": step}
        one.save(step * 100, args=ocp.args.StandardSave(state))
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), data=ocp.args.JsonSave({"batch": step})
        )
        several.save(step * 100, args=items)
    for manager in (one, several):
        manager.wait_until_finished()
        manager.close()


if __name__ == "__main__":
    main()
