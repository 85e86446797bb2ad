import contextlib
import sqlite3

import pytest

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.store import LocalStore
from holdfast.model.errors import BackendError


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "state.db"
    LocalStore(path, create=True).close()
    return path


def change(path, *statements) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


SECOND = (
    "ALTER TABLE nodes DROP COLUMN instance_group",
    "ALTER TABLE nodes DROP COLUMN launched_at",
    "DROP TABLE groups",
    "DROP TABLE leaving",
    "DROP TABLE launches",
    "PRAGMA user_version = 2",
)
"""What makes the third layout the second one."""


def test_a_run_of_the_second_layout_is_read_and_has_no_groups(path) -> None:
    change(path, *SECOND, "INSERT INTO nodes VALUES ('n1', 'i-1', '', '{}')")

    with contextlib.closing(ClusterStore(path)) as store:
        assert store.node_groups() == {"n1": ""}
        assert (store.groups(), store.leaving()) == ({}, frozenset())


def test_a_run_of_the_first_release_is_read_and_can_be_held(path) -> None:
    change(path, *SECOND, "DROP TABLE holds", "PRAGMA user_version = 1")

    store = LocalStore(path)

    store.hold("node-1", "later")
    assert LocalStore(path).holds() == {"node-1": "later"}


def test_a_later_layout_is_refused_by_name(path) -> None:
    change(path, "PRAGMA user_version = 99")

    with pytest.raises(BackendError, match="has layout 99"):
        LocalStore(path)
