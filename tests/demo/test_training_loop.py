import json
import sys
from datetime import timedelta

import pytest

from holdfast.apps.demo.options import Options, RankEnvironment
from holdfast.apps.demo.replica import PeerLost
from holdfast.apps.demo.training_loop import run_trainer, train
from holdfast.model.errors import BackendError, ConfigError, StorageFull


class CountingReplica:
    """A model whose weight is the number of steps it has seen."""

    def __init__(self, progress_file, *, lost_at=None, received=None):
        self.count = 0
        self.progress = []
        self.sent = []
        self.trained = []
        self._progress_file = progress_file
        self._lost_at = lost_at
        self._received = received

    def train(self, step):
        if step == self._lost_at:
            raise PeerLost("gone")
        if self._progress_file.exists():
            self.progress.append(int(self._progress_file.read_text().split()[-1]))
        self.trained.append(step)
        self.count += 1
        return 0.5

    def broadcast(self, payload):
        self.sent.append(payload)
        return payload if self._received is None else self._received

    def state(self):
        return str(self.count).encode()

    def restore(self, state):
        self.count = int(state)

    def weights(self):
        return self.state()

    def held_out_loss(self):
        return 1.25


@pytest.fixture
def start(tmp_path):
    def run(*, steps=10, rank=0, every=4, lost_at=None, received=None, progress=True):
        progress_file = tmp_path / "progress"
        progress_file.unlink(missing_ok=True)
        options = Options(
            steps=steps,
            checkpoint_every=every,
            seed=0,
            batch=1,
            hidden=1,
            step_time=timedelta(0),
            join_timeout=timedelta(seconds=1),
            peer_timeout=timedelta(seconds=1),
            checkpoint_dir=tmp_path / "checkpoints",
        )
        environment = RankEnvironment(
            rank=rank,
            world_size=2,
            master_addr="127.0.0.1",
            master_port=1,
            attempt=3,
            progress_file=progress_file if progress else None,
        )
        replica = CountingReplica(progress_file, lost_at=lost_at, received=received)
        try:
            train(replica, options, environment, "run")
        except PeerLost:
            assert lost_at is not None
        return replica

    return run


def saved(tmp_path):
    return sorted(int(path.stem[5:]) for path in (tmp_path / "checkpoints").glob("*.ckpt"))


def test_every_step_is_made_once_saved_on_time_and_reported(start, tmp_path):
    replica = start()

    assert replica.trained == list(range(10))
    assert replica.progress == list(range(10))
    assert (tmp_path / "progress").read_text().split()[-1] == "10"
    assert saved(tmp_path) == [4, 8, 10]


def test_a_resumed_job_goes_on_after_its_last_checkpoint_and_reports_it_first(
    start, tmp_path, capsys
):
    start(lost_at=7)

    replica = start()

    assert replica.trained == [4, 5, 6, 7, 8, 9]
    assert replica.count == 10
    assert replica.progress[0] == 4
    assert "attempt 3: resumed at step 4 of 10, world size 2" in capsys.readouterr().out


def test_other_ranks_take_over_the_step_and_the_state_of_rank_0_and_write_nothing(start, tmp_path):
    start(lost_at=7)
    message = start(lost_at=4).sent[0]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    other = start(rank=1, received=message)

    assert (other.trained, other.count) == ([4, 5, 6, 7, 8, 9], 10)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert after.items() <= before.items() | {(tmp_path, after.get(tmp_path))}


def test_the_result_is_stored_before_any_rank_may_end(start, tmp_path):
    replica = start()

    assert json.loads((tmp_path / "checkpoints" / "final.json").read_text()) == {
        "steps": 10,
        "sha256": "4a44dc15364204a80fe80e9039455cc1608281820fe2b24f1e5233ade6af1dd5",
        "loss": 1.25,
    }
    assert len(replica.sent) == 2


def test_a_finished_job_that_is_started_again_has_nothing_to_do(start, tmp_path):
    start()
    first = (tmp_path / "checkpoints" / "final.json").read_text()

    assert start().trained == []
    assert (tmp_path / "checkpoints" / "final.json").read_text() == first
    assert (tmp_path / "progress").read_text().split()[-1] == "10"


def test_checkpoints_beyond_the_last_step_are_refused(start):
    start()

    with pytest.raises(ConfigError, match="of step 10, beyond --steps 9"):
        start(steps=9)


def test_nobody_needs_to_ask_for_progress(start, tmp_path):
    assert start(progress=False).progress == []
    assert not (tmp_path / "progress").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(["first", "second"]), 2),
        (PeerLost("first\nsecond"), 1),
        (BackendError("first\nsecond"), 1),
        (StorageFull("first\nsecond"), 1),
    ],
)
def test_errors_become_lines_and_exit_codes(monkeypatch, capsys, error, code):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setattr(sys, "argv", ["trainer"])

    def fail(_arguments):
        raise error

    assert run_trainer(fail) == code
    assert capsys.readouterr().err == "rank 7: first\nrank 7: second\n"
