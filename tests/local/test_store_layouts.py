import contextlib
import sqlite3
from datetime import UTC, datetime

import pytest

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.store import LocalStore, recover_state
from holdfast.model.errors import BackendError, StateDamaged
from holdfast.model.jobs import JobRecord, JobSpec

NOW = datetime(2026, 1, 2, tzinfo=UTC)


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


COMMAND = """
INSERT INTO run VALUES ('{"command": ["python", "train.py"], "pid": 7, "checkpoint_dir": "/ckpt",
"started_at": "2026-01-02T03:04:05+00:00"}')
"""

THIRD = (
    "ALTER TABLE jobs DROP COLUMN submission",
    "DROP TABLE cluster",
    "CREATE TABLE run (body TEXT NOT NULL)",
    "PRAGMA user_version = 3",
)
"""What makes the fourth layout the third one."""

SECOND = (
    *THIRD,
    "ALTER TABLE nodes DROP COLUMN instance_group",
    "ALTER TABLE nodes DROP COLUMN launched_at",
    "DROP TABLE groups",
    "DROP TABLE leaving",
    "DROP TABLE launches",
    "PRAGMA user_version = 2",
)
"""What makes the third layout the second one."""


def test_the_job_of_the_third_layout_keeps_its_command_and_checkpoints(path) -> None:
    spec, record = JobSpec(name="llm", nodes=2), JobRecord(phase="failed", phase_since=NOW)
    with contextlib.closing(LocalStore(path)) as store:
        store.add_job(spec, record)
    change(path, *THIRD, COMMAND)

    with contextlib.closing(LocalStore(path)) as store:
        assert store.jobs() == {"llm": (spec, record, False)}
        submission = store.submissions()["llm"]
        assert (submission.command, submission.checkpoint_dir) == (("python", "train.py"), "/ckpt")
        assert submission.id == ""
        assert store.uid() is None


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


def test_an_upgrade_keeps_the_earlier_layout(path) -> None:
    change(path, *THIRD)

    LocalStore(path).close()

    [kept] = path.parent.glob("state.db.layout-*")
    with contextlib.closing(sqlite3.connect(kept)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    assert {one.stat().st_mode & 0o777 for one in (path, kept)} == {0o600}


def test_a_job_is_not_lost_when_the_state_of_its_cluster_is_damaged(path) -> None:
    spec, record = JobSpec(name="llm", nodes=2), JobRecord(phase="running", phase_since=NOW)
    with contextlib.closing(LocalStore(path)) as store:
        store.add_job(spec, record)
    assert recover_state(path) == ""
    with path.open("r+b") as file:
        file.write(b"x" * 4096)
    with pytest.raises(StateDamaged, match="is damaged"):
        LocalStore(path)

    assert "was restored" in recover_state(path)

    with contextlib.closing(LocalStore(path)) as store:
        assert list(store.active_jobs()) == ["llm"]
