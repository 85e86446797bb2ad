import contextlib
import io
import resource
import sqlite3
import time
from datetime import UTC, datetime

import pytest

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.groups import LocalMachineGroups
from holdfast.adapters.local.layout import cluster_dir
from holdfast.adapters.local.lock import locked
from holdfast.adapters.local.store import LocalStore, Submission, recover_state
from holdfast.apps.run.logs import Follow, RankLogs
from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.apps.run.on_cluster import Followed
from holdfast.apps.run.screen import PlainScreen
from holdfast.kit.sqlite_files import backup_of
from holdfast.model.clusters import MachineGroup
from holdfast.model.errors import BackendError, StateDamaged
from holdfast.model.jobs import JobRecord, JobSpec
from holdfast.model.nodes import NodeRecord, Phase

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SUBMISSION = Submission(
    id="llm-1", name="llm", command=("train",), pid=7, started_at=NOW, checkpoint_dir="/ckpt"
)


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


@pytest.mark.parametrize("layout", [0, 1, 3, 5, 99])
@pytest.mark.parametrize("opened", [LocalStore, ClusterStore])
def test_another_layout_is_refused_with_its_remedy_and_kept(path, layout, opened) -> None:
    with contextlib.closing(opened(path)) as store:
        store.hold("node-1", "later")
    change(path, f"PRAGMA user_version = {layout}")

    with pytest.raises(BackendError, match=rf"has layout {layout}, .* move the file away"):
        opened(path)

    change(path, "PRAGMA user_version = 4")
    with contextlib.closing(opened(path)) as store:
        assert store.holds() == {"node-1": "later"}


@pytest.mark.attack
def test_a_job_is_not_lost_when_the_state_of_its_cluster_is_damaged(path) -> None:
    spec, record = JobSpec(name="llm", nodes=2), JobRecord(phase="running", phase_since=NOW)
    with contextlib.closing(LocalStore(path)) as store:
        store.add_job(spec, record, SUBMISSION)
    assert recover_state(path) == ""
    with path.open("r+b") as file:
        file.write(b"x" * 4096)
    with pytest.raises(StateDamaged, match="is damaged"):
        LocalStore(path)

    assert "was restored" in recover_state(path)

    with contextlib.closing(LocalStore(path)) as store:
        assert list(store.active_jobs()) == ["llm"]


@pytest.mark.attack
def test_a_cluster_whose_state_is_damaged_gets_the_process_that_restores_it(tmp_path) -> None:
    group, run, started = MachineGroup(cluster="lab", name="gpu"), cluster_dir(tmp_path, "lab"), []
    groups = LocalMachineGroups(tmp_path, started.append)
    groups.ensure(group)
    assert recover_state(run.state) == ""
    run.state.write_bytes(b"x" * 4096)
    started.clear()

    with locked(run), pytest.raises(StateDamaged):  # that process still runs, and will find it
        groups.machines(group.key)
    assert started == []
    with pytest.raises(StateDamaged):
        groups.machines(group.key)
    assert started == [run]

    assert "was restored" in recover_state(run.state)
    assert groups.machines(group.key) == ()
    run.state.write_bytes(b"x" * 4096)
    backup_of(run.state).unlink()
    started.clear()
    with pytest.raises(StateDamaged):  # it could only end again
        groups.machines(group.key)
    assert started == []


@pytest.mark.attack
def test_what_others_have_submitted_reaches_the_backup(path) -> None:
    assert recover_state(path) == ""
    with contextlib.closing(LocalStore(path)) as owner:
        owner.back_up_changes()
        with contextlib.closing(LocalStore(path)) as other:
            spec, record = JobSpec(name="llm", nodes=2), JobRecord(phase="waiting", phase_since=NOW)
            other.add_job(spec, record, SUBMISSION)

        deadline = time.monotonic() + 60
        while True:
            owner.back_up_changes()
            with contextlib.closing(LocalStore(backup_of(path))) as backup:
                if list(backup.active_jobs()) == ["llm"]:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.attack
@pytest.mark.parametrize("is_in_backup", [True, False])
def test_who_follows_a_job_follows_it_in_the_restored_state(tmp_path, *, is_in_backup) -> None:
    run, told = cluster_dir(tmp_path, "lab"), []
    LocalMachineGroups(tmp_path, told.append).ensure(MachineGroup(cluster="lab", name="gpu"))
    job, record = JobSpec(name="llm", nodes=2), JobRecord(phase="succeeded", phase_since=NOW)
    told.clear()
    with contextlib.closing(ClusterStore(run.state)) as store:
        if is_in_backup:
            store.add_job(job, record, SUBMISSION)
        recover_state(run.state)
        store.add_job(job, record, SUBMISSION)
        run.state.write_bytes(b"x" * 4096)
        assert "was restored" in recover_state(run.state)
        followed = Followed(run, run, "llm", store, told.append)
        screen = PlainScreen(NonblockingOutput(io.StringIO()), NOW)
        logs = RankLogs(lambda: run, 2, Follow.NONE)

        if is_in_backup:
            followed.follow(screen, logs)
        else:
            with pytest.raises(BackendError, match="job llm is not in the restored state"):
                followed.follow(screen, logs)
        followed.store.close()

    assert told == ["the state of the cluster lab was restored from its backup"]


def test_a_change_that_cannot_be_written_is_undone_and_made_later(path):
    node = NodeRecord(phase=Phase.JOINING, phase_since=NOW)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with contextlib.closing(LocalStore(path)) as store:
        store.add_node("holdfast-1", "machine-1", "", node)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        try:
            with pytest.raises(BackendError, match="disk I/O error"):
                store.remove_node("holdfast-1")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [*store.nodes()] == ["holdfast-1"]
        store.remove_node("holdfast-1")
        assert not store.nodes()
