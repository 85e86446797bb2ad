from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.apps.demo.corpus import corpus_of
from holdfast.apps.demo.options import parse_options, rank_environment
from holdfast.model.errors import ConfigError

JOINED = {"WORLD_SIZE": "4", "RANK": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def options(*arguments, **variables):
    return parse_options("trainer", "Train.", arguments, variables)


def test_without_an_environment_the_job_is_one_process():
    environment = rank_environment({})

    assert (environment.rank, environment.world_size, environment.attempt) == (0, 1, 1)
    assert environment.progress_file is None


def test_the_environment_of_a_rank_is_read():
    environment = rank_environment(
        JOINED | {"HOLDFAST_ATTEMPT": "5", "HOLDFAST_PROGRESS_FILE": "/p"}
    )

    assert (environment.rank, environment.world_size, environment.attempt) == (3, 4, 5)
    assert (environment.master_addr, environment.master_port) == ("10.0.0.1", 29500)
    assert environment.progress_file == Path("/p")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "4"),
        ("RANK", "-1"),
        ("RANK", "²"),
        ("WORLD_SIZE", "0"),
        ("WORLD_SIZE", "two"),
        ("MASTER_PORT", "0"),
        ("MASTER_PORT", "65536"),
        ("HOLDFAST_ATTEMPT", "0"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(name, value):
    with pytest.raises(ConfigError, match=f"{name}='{value}' is not a whole number from"):
        rank_environment(JOINED | {name: value})


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        rank_environment({"WORLD_SIZE": "2", "HOLDFAST_ATTEMPT": "x"})

    assert [problem.split()[0] for problem in caught.value.problems] == [
        "RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "HOLDFAST_ATTEMPT='x'",
    ]


def test_the_directory_is_an_option_then_a_variable_then_below_the_working_directory():
    variable = {"HOLDFAST_CHECKPOINT_DIR": "/variable"}

    assert options("--checkpoint-dir", "/option", **variable).checkpoint_dir == Path("/option")
    assert options(**variable).checkpoint_dir == Path("/variable")
    assert options().checkpoint_dir == Path("checkpoints")


def test_limits_are_allowed():
    chosen = options("--steps", "1", "--seed", str(2**63 - 1), "--step-time", "0.25")

    assert (chosen.steps, chosen.seed) == (1, 2**63 - 1)
    assert chosen.step_time == timedelta(milliseconds=250)
    assert chosen.peer_timeout == timedelta(seconds=30)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--steps", "0"),
        ("--steps", "1e3"),
        ("--steps", str(10**9)),
        ("--checkpoint-every", "0"),
        ("--seed", "-1"),
        ("--seed", str(2**63)),
        ("--batch", "0"),
        ("--hidden", "0"),
        ("--step-time", "-0.1"),
        ("--step-time", "nan"),
        ("--step-time", "inf"),
        ("--join-timeout", "0"),
        ("--peer-timeout", "soon"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(capsys, option, value):
    with pytest.raises(SystemExit) as caught:
        options(f"{option}={value}")

    assert caught.value.code == 2
    assert f"argument {option}: {value!r} is not a " in capsys.readouterr().err


def test_what_shapes_the_weights_is_in_the_identity_and_nothing_else():
    corpus, other = corpus_of(b"x" * 500), corpus_of(b"y" * 500)

    def identity(*arguments, trainer="numpy", text=corpus):
        return options(*arguments).run_identity(trainer, text)

    changed = {
        identity("--seed", "1"),
        identity("--batch", "1"),
        identity("--hidden", "1"),
        identity(trainer="torch"),
        identity(text=other),
    }
    assert len(changed) == 5
    assert identity() not in changed
    assert identity() == identity(
        "--steps=9", "--step-time=1", "--checkpoint-every=1", "--checkpoint-dir=/x"
    )
