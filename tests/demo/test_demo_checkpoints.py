import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.apps.demo.checkpoints import KEEP, DemoCheckpoint, DemoCheckpoints, write_durably
from holdfast.model.checkpoints import CheckpointState, Depth
from holdfast.model.errors import BackendError, ConfigError, StorageFull


def no_warning(line):
    raise AssertionError(line)


def names(path):
    return sorted(entry.name for entry in path.iterdir())


@given(st.binary(max_size=300) | st.just(b"\n\n"), st.integers(0, 10**9))
def test_what_was_saved_is_what_is_read(state, step):
    with tempfile.TemporaryDirectory() as path:
        directory = DemoCheckpoints(Path(path), "run")

        directory.save(DemoCheckpoint(step, state))

        assert directory.newest(no_warning) == DemoCheckpoint(step, state)


def test_no_checkpoint_is_no_error(tmp_path):
    assert DemoCheckpoints(tmp_path / "a" / "b", "run").newest(no_warning) is None


def test_the_newest_are_kept_and_read_in_the_order_of_their_steps(tmp_path):
    directory = DemoCheckpoints(tmp_path, "run")

    for step in (5, 50, 500, 5000, 50000):
        directory.save(DemoCheckpoint(step, b"state"))

    assert KEEP == 3
    assert names(tmp_path) == [f"step-{step:09d}.ckpt" for step in (500, 5000, 50000)]
    assert directory.newest(no_warning).step == 50000


@given(st.data())
def test_any_damaged_byte_is_noticed_and_the_checkpoint_before_is_taken(data):
    with tempfile.TemporaryDirectory() as path:
        directory = DemoCheckpoints(Path(path), "run")
        directory.save(DemoCheckpoint(1, b"one"))
        directory.save(DemoCheckpoint(2, b"two"))
        newest = Path(path) / "step-000000002.ckpt"
        content = bytearray(newest.read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
        newest.write_bytes(content)
        warnings = []

        assert directory.newest(warnings.append) == DemoCheckpoint(1, b"one")
        assert directory.newest(no_warning) == DemoCheckpoint(1, b"one")
        [warning] = warnings
        assert warning.startswith("checkpoint step-000000002.ckpt is damaged (its ")
        assert warning.endswith("): set aside as step-000000002.damaged")


@given(st.data())
def test_holdfast_verifies_it_and_finds_any_flipped_bit_of_the_state(data):
    with tempfile.TemporaryDirectory() as path:
        state = b"a state of the trainer" * 10
        DemoCheckpoints(Path(path), "run").save(DemoCheckpoint(2, state))
        file = Path(path) / "step-000000002.ckpt"

        def found():
            store = CheckpointDirectory(Path(path))
            [one] = store.survey().checkpoints
            return one.step, store.verify(one.name, Depth.HASHES, None).state

        assert found() == (2, CheckpointState.COMPLETE)
        content = bytearray(file.read_bytes())
        position = content.index(state) + data.draw(st.integers(0, len(state) - 1))
        content[position] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        assert found() == (2, CheckpointState.DAMAGED)


@pytest.mark.parametrize("damage", [b"", b"\n", b"x" * 64, None])
def test_a_cut_off_or_lengthened_checkpoint_is_noticed(tmp_path, damage):
    directory = DemoCheckpoints(tmp_path, "run")
    directory.save(DemoCheckpoint(2, b"two"))
    path = tmp_path / "step-000000002.ckpt"
    whole = path.read_bytes()
    warnings = []

    path.write_bytes(whole + b"\n" if damage is None else damage)

    assert directory.newest(warnings.append) is None
    assert len(warnings) == 1


def test_an_unreadable_checkpoint_is_set_aside(tmp_path):
    directory = DemoCheckpoints(tmp_path, "run")
    directory.save(DemoCheckpoint(1, b"one"))
    (tmp_path / "step-000000002.ckpt").mkdir()
    warnings = []

    assert directory.newest(warnings.append) == DemoCheckpoint(1, b"one")
    assert "Is a directory" in warnings[0]


def test_a_checkpoint_of_another_run_is_refused_not_overwritten(tmp_path):
    DemoCheckpoints(tmp_path, "numpy seed=1").save(DemoCheckpoint(7, b"mine"))

    with pytest.raises(ConfigError, match=r"another run \(numpy seed=1; this run: numpy seed=2\)"):
        DemoCheckpoints(tmp_path, "numpy seed=2").newest(no_warning)

    assert DemoCheckpoints(tmp_path, "numpy seed=1").newest(no_warning).state == b"mine"


def test_what_a_killed_writer_left_is_removed(tmp_path):
    (tmp_path / ".step-000000007.ckpt.tmp").write_bytes(b"part")

    DemoCheckpoints(tmp_path, "run")

    assert names(tmp_path) == []


def test_a_full_disk_is_named_and_costs_no_older_checkpoint(tmp_path):
    directory = DemoCheckpoints(tmp_path, "run")
    directory.save(DemoCheckpoint(1, b"one"))
    # Every write to /dev/full fails as on a full disk.
    (tmp_path / ".step-000000002.ckpt.tmp").symlink_to("/dev/full")

    with pytest.raises(StorageFull, match=r"step-000000002\.ckpt could not be written: No space"):
        directory.save(DemoCheckpoint(2, b"two"))

    assert names(tmp_path) == ["step-000000001.ckpt"]
    assert directory.newest(no_warning).step == 1


def test_another_failure_to_write_is_named_too(tmp_path):
    with pytest.raises(BackendError, match="could not be written: No such file") as caught:
        write_durably(tmp_path / "gone" / "file", b"")

    assert not isinstance(caught.value, StorageFull)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="choose another directory"):
            DemoCheckpoints(path, "run")


def test_a_directory_that_cannot_be_written_is_refused_before_training():
    with pytest.raises(ConfigError, match=r"/proc/self/task"):
        DemoCheckpoints(Path("/proc/self/task"), "run")
