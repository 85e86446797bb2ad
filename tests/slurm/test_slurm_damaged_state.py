"""A controller whose state.db is damaged: nodes and jobs go on with the last backup."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet

from holdfast.adapters.slurm.nodes.state import FILE, SlurmStore
from holdfast.kit.sqlite_files import backup_of
from holdfast.model.nodes import NodeRecord


@pytest.mark.attack
@pytest.mark.parametrize("has_backup", [True, False])
def test_a_damaged_state_is_restored_or_begun_anew_and_nodes_are_repaired(
    fleet: Fleet, has_backup: bool
) -> None:
    controller = fleet.control()
    state = fleet.state_dir / FILE
    before = fleet.record("node1")
    fleet.until(lambda: recorded(backup_of(state), "node1") == before)
    controller.end()
    state.write_bytes(b"no database" * 1000)
    if not has_backup:
        backup_of(state).unlink()

    controller = fleet.control(wait=False)

    fleet.until(lambda: "StateRestored:" in controller.log)
    assert ("was restored" if has_backup else "starts empty") in controller.log
    assert len([*fleet.state_dir.glob(f"{FILE}.damaged-*")]) == 1
    assert (fleet.record("node1") == before) == has_backup
    fleet.machines["node3"].log(REPLACE_XID)
    assert fleet.until_recovered("node3").node == "node3"
    assert {one.node for one in fleet.incidents} == {"node3"}
    assert {one.stat().st_mode & 0o777 for one in (state, backup_of(state)) if one.exists()} == {
        0o600
    }


def recorded(state: Path, node: str) -> NodeRecord | None:
    """The record of a node in a copy of a file: who opens it with WAL changes it."""
    if not state.exists():
        return None
    copy = state.with_suffix(".copy")
    shutil.copyfile(state, copy)
    with closing(SlurmStore(copy)) as store:
        known = store.read().nodes.get(node)
    return None if known is None else known.record
