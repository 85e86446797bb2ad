import os
import random
import signal
import socket
import subprocess
import time
from datetime import timedelta

import pytest
from effort import is_quick, some
from trainer_ranks import ROOT, Attempt, checkpoints, final, numpy_command

from holdfast.apps.demo.allreduce import RankGroup
from holdfast.apps.demo.corpus import corpus_of
from holdfast.apps.demo.options import parse_options, rank_environment
from holdfast.apps.demo.train_numpy import NumpyReplica
from tests.engines.ports import free_port

STEPS, EVERY = 120, 20
SIZE = ("--steps", str(STEPS), "--batch", "96", "--hidden", "48")
UNHURRIED = ("--checkpoint-every", str(EVERY), "--step-time", "0.006")
TRAIN = numpy_command(*SIZE, *UNHURRIED)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What two ranks arrive at when nothing happens."""
    return finish(tmp_path_factory.mktemp("undisturbed"))


CORPUS = corpus_of(bytes(range(32, 127)) * 10)
ALONE = RankGroup({}, timedelta(seconds=1))


def options(seed):
    return parse_options("trainer", "Train.", ["--seed", seed], {})


def finish(directory, *, nodes=2, attempt=1, command=TRAIN):
    with Attempt(directory, command, nodes=nodes, attempt=attempt) as ranks:
        assert ranks.exit_codes() == [0] * nodes, ranks.errors()
        assert ranks.errors() == [""] * nodes
    return final(directory)


def kill(number, *victims):
    def hit(ranks):
        ranks.signal(number, *victims)

    return hit


def stop_then_kill(rank):
    def hit(ranks):
        ranks.signal(signal.SIGSTOP, rank)
        time.sleep(0.05)
        ranks.signal(signal.SIGKILL, rank)

    return hit


INTERRUPTIONS = {
    "kill rank 0": (kill(signal.SIGKILL, 0), [-9, 1]),
    "kill rank 1": (kill(signal.SIGKILL, 1), [1, -9]),
    "kill both": (kill(signal.SIGKILL, 0, 1), [-9, -9]),
    "terminate both": (kill(signal.SIGTERM, 0, 1), [-15, -15]),
    "interrupt both": (kill(signal.SIGINT, 0, 1), [-2, -2]),
    "stop, then kill rank 1": (stop_then_kill(1), [1, -9]),
    "stop, then kill rank 0": (stop_then_kill(0), [-9, 1]),
}


@pytest.mark.parametrize("name", some(INTERRUPTIONS))
def test_a_job_that_was_interrupted_ends_with_the_same_bits(tmp_path, undisturbed, name):
    hit, codes = INTERRUPTIONS[name]
    chance = random.Random(name)
    for attempt in (1, 2):
        with Attempt(tmp_path, TRAIN, attempt=attempt) as ranks:
            ranks.wait_for_step(chance.randrange(STEPS // 4) + STEPS // 3 * (attempt - 1))
            hit(ranks)

            for rank, (code, expected) in enumerate(zip(ranks.exit_codes(), codes, strict=True)):
                # Where both are hit, the second may notice the end of the first before.
                assert code in (expected, 1)
                error = ranks.errors()[rank]
                assert code < 0 or error.startswith(f"rank {rank}: lost rank {1 - rank}: ")
                assert error.count("\n") <= 1

    assert finish(tmp_path, attempt=3) == undisturbed


def test_a_job_of_three_ranks_ends_with_the_same_bits_too(tmp_path):
    expected = finish(tmp_path / "undisturbed", nodes=3)
    with Attempt(tmp_path, TRAIN, nodes=3) as ranks:
        ranks.wait_for_step(EVERY + 3)
        ranks.signal(signal.SIGKILL, 2)
        assert ranks.exit_codes() == [1, 1, -9]

    assert finish(tmp_path, nodes=3, attempt=2) == expected


def test_a_rank_killed_while_it_saves_leaves_only_whole_checkpoints(tmp_path, undisturbed):
    always = numpy_command(*SIZE, "--checkpoint-every", "1")
    chance = random.Random(1)
    kills = 2 if is_quick() else 8
    for attempt in range(1, kills + 1):
        with Attempt(tmp_path, always, attempt=attempt) as ranks:
            ranks.wait_for_step(0)
            time.sleep(chance.random() * 0.08)
            ranks.signal(signal.SIGKILL, 0)
            ranks.exit_codes()
        assert not any("damaged" in error for error in ranks.errors())

    assert finish(tmp_path, attempt=kills + 1, command=always) == undisturbed


def test_ranks_killed_before_their_first_step_cost_nothing(tmp_path, undisturbed):
    for attempt, pause in enumerate((0.0, 0.1, 0.2), start=1):
        with Attempt(tmp_path, TRAIN, attempt=attempt):
            time.sleep(pause)

    assert finish(tmp_path, attempt=4) == undisturbed


def interrupted_after_two_checkpoints(directory):
    with Attempt(directory, TRAIN) as ranks:
        ranks.wait_for_step(2 * EVERY + 1)
    return checkpoints(directory)


def flip_last_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_newest_checkpoint_costs_steps_but_no_bit(tmp_path, undisturbed):
    *_, before, newest = interrupted_after_two_checkpoints(tmp_path)
    flip_last_byte(newest)

    with Attempt(tmp_path, TRAIN, attempt=2) as ranks:
        assert ranks.exit_codes() == [0, 0]

    assert ranks.errors()[0].startswith(f"rank 0: checkpoint {newest.name} is damaged")
    assert f"resumed at step {int(before.stem[5:])} " in ranks.outputs()[0]
    assert final(tmp_path) == undisturbed


def test_without_any_whole_checkpoint_the_job_starts_again(tmp_path, undisturbed):
    for path in interrupted_after_two_checkpoints(tmp_path):
        flip_last_byte(path)

    with Attempt(tmp_path, TRAIN, attempt=2) as ranks:
        assert ranks.exit_codes() == [0, 0]

    assert "started at step 0 " in ranks.outputs()[0]
    assert final(tmp_path) == undisturbed


def test_the_number_of_ranks_does_not_change_what_is_learned(tmp_path):
    reports = []
    for nodes in (1, 2, 5):
        command = numpy_command("--steps", "3", "--batch", "64", "--checkpoint-every", "1")
        with Attempt(tmp_path / str(nodes), command, nodes=nodes) as ranks:
            assert ranks.exit_codes() == [0] * nodes
        # Not to the bit: the sums are rounded in another order.
        reports.append([line for line in ranks.outputs()[0].splitlines() if "loss" in line][:3])

    assert reports[0] == reports[1] == reports[2]


def test_the_seed_shapes_the_first_weights():
    def untrained(seed):
        return NumpyReplica(CORPUS, options(seed), rank_environment({}), ALONE).weights()

    assert untrained("0") == untrained("0") != untrained("1")


def test_the_model_learns(undisturbed):
    assert undisturbed["loss"] < 3.0  # guessing evenly among 96 characters: ln 96 = 4.56 nats


def test_another_seed_gives_other_weights(tmp_path, undisturbed):
    command = numpy_command(*SIZE, "--seed", "1")

    assert finish(tmp_path, command=command)["sha256"] != undisturbed["sha256"]


def assert_ends(ranks, codes, *messages):
    """Each rank ends with its code and one line that begins so."""
    assert ranks.exit_codes() == codes
    for error, message in zip(ranks.errors(), messages, strict=True):
        assert error.startswith(message)
        assert error.count("\n") == 1


def test_checkpoints_of_another_run_are_refused(tmp_path):
    interrupted_after_two_checkpoints(tmp_path)

    with Attempt(tmp_path, [*TRAIN, "--seed", "1"], attempt=2) as ranks:
        path = checkpoints(tmp_path)[-1]
        assert_ends(
            ranks,
            [2, 1],
            f"rank 0: checkpoint {path} belongs to another run (numpy seed=0 ",
            "rank 1: lost rank 0: connection closed",
        )


def test_a_full_disk_ends_the_job_with_a_message_and_costs_no_checkpoint(tmp_path, undisturbed):
    with Attempt(tmp_path, TRAIN) as ranks:
        ranks.wait_for_step(EVERY)
        directory = tmp_path / "checkpoints"
        full = directory / f"step-{5 * EVERY:09d}.ckpt"
        # Every write to /dev/full fails as on a full disk.
        (directory / f".{full.name}.tmp").symlink_to("/dev/full")
        assert_ends(
            ranks,
            [1, 1],
            f"rank 0: {full} could not be written: No space left on device; free some space",
            "rank 1: lost rank 0: ",  # closed, or reset if rank 0 had not read everything
        )
    whole = [directory / f"step-{step * EVERY:09d}.ckpt" for step in (2, 3, 4)]
    assert sorted(directory.iterdir()) == whole

    assert finish(tmp_path, attempt=2) == undisturbed


def test_a_port_in_use_ends_rank_0_with_a_message(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Attempt(tmp_path, TRAIN, port=port) as ranks:
            assert ranks.processes[0].wait(30) == 2
            (line,) = ranks.errors()[0].splitlines()

    assert f"MASTER_PORT={port}: Address already in use; choose another port" in line


def test_a_rank_with_other_options_is_refused(tmp_path):
    with Attempt(tmp_path, TRAIN, rank_1_options=("--seed", "9")) as ranks:
        assert_ends(ranks, [2, 1], "rank 0: rank 1 runs another job", "rank 1: lost rank 0")


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_makes_the_other_end_after_the_timeout(tmp_path, stopped):
    other = 1 - stopped
    with Attempt(tmp_path, [*TRAIN, "--peer-timeout", "0.3"]) as ranks:
        ranks.wait_for_step(3)
        ranks.signal(signal.SIGSTOP, stopped)

        assert ranks.processes[other].wait(30) == 1
        assert f"rank {other}: lost rank {stopped}: no message for 300ms" in ranks.errors()[other]


def run_alone(directory, *options, **variables):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        numpy_command(*options),
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_runs_alone_without_any_environment(tmp_path):
    result = run_alone(tmp_path, *SIZE)

    assert (result.returncode, result.stderr) == (0, "")
    assert final(tmp_path)["sha256"] in result.stdout.splitlines()[-1]


def test_a_missing_rank_ends_the_others(tmp_path):
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    for rank, message in (("0", "did not join in time: ranks [1]"), ("1", "rank 0 not reached")):
        result = run_alone(tmp_path, "--join-timeout", "0.3", RANK=rank, **place)

        assert result.returncode == 1
        assert result.stderr.startswith(f"rank {rank}: {message}")
        assert result.stderr.count("\n") == 1


def test_wrong_input_ends_with_exit_code_2_and_leaves_nothing(tmp_path):
    (tmp_path / "file").touch()

    for options, variables, message in (
        (("--steps", "0"), {}, "argument --steps: '0' is not"),
        ((), {"WORLD_SIZE": "none"}, "rank 0: WORLD_SIZE='none' is not a whole number"),
        (("--checkpoint-dir", "file"), {}, "rank 0: checkpoint directory file: File exists"),
    ):
        result = run_alone(tmp_path, *options, **variables)

        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_numpy_it_says_what_to_install(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(name='numpy')")

    result = run_alone(tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")

    assert result.returncode == 2
    assert result.stderr == "NumPy is not installed: pip install 'holdfast[demo]'\n"
