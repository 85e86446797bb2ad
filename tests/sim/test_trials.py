"""``holdfast simulate``: what it computes, and how it answers bad input."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from effort import is_quick, some

from holdfast.apps.cli.simulate import simulate
from holdfast.apps.simulate.simulation import FAULT_KINDS, Trial, daly_ettr, percentile, run_trial
from holdfast.model.errors import ConfigError

MINUTE = timedelta(minutes=1)
TRIAL = Trial(
    nodes=40,
    job_nodes=32,
    days=30.0,
    faults_per_1000_node_days=20.0,
    reboot_time=3 * MINUTE,
    replace_time=25 * MINUTE,
    restart_time=5 * MINUTE,
    checkpoint_every=30 * MINUTE,
    checkpoint_time=MINUTE,
    max_retries=1000,
)


def result_of(**changes):
    return run_trial(replace(TRIAL, **changes), lambda _: None)


@pytest.mark.parametrize(
    ("mttf", "restart", "interval", "checkpoint", "ettr"),
    [
        # Exact form for Llama 3's time to failure, at the best interval of each.
        (185.6, 1, 4.3, 0.05, 0.9717),
        (185.6, 5, 13.3, 0.5, 0.9037),
        (185.6, 10, 18.6, 1, 0.8525),
    ],
)
def test_the_closed_form_is_dalys(mttf, restart, interval, checkpoint, ettr) -> None:
    share = daly_ettr(
        mean_time_to_failure=mttf * MINUTE,
        restart=restart * MINUTE,
        interval=interval * MINUTE,
        checkpoint=checkpoint * MINUTE,
    )

    assert share == pytest.approx(ettr, abs=0.0001)


def test_where_failures_are_too_frequent_nothing_is_ever_done() -> None:
    assert (
        daly_ettr(
            mean_time_to_failure=timedelta(seconds=1),
            restart=60 * MINUTE,
            interval=MINUTE,
            checkpoint=MINUTE,
        )
        == 0.0
    )


@pytest.mark.parametrize("seed", some([1, 2, 3]))
def test_with_spares_the_simulation_agrees_with_the_closed_form(seed) -> None:
    result = result_of(seed=seed, days=60.0)

    # About 38 failures, give or take 6, of about 20 minutes each in 60 days: 0.15 points of sigma.
    assert result.ettr == pytest.approx(result.closed_form_ettr, abs=0.006)
    assert result.restarts["hardware"] == pytest.approx(38, abs=25)


def test_without_spares_the_job_waits_for_every_repair() -> None:
    with_spares, without = result_of(), result_of(nodes=32)

    assert with_spares.waited_s < 60
    assert without.waited_s > 60 * 60
    assert without.ettr < with_spares.ettr


def test_repairs_take_as_long_as_was_reported() -> None:
    result = result_of(days=60.0)

    times = {one.remedy: one for one in result.repairs}
    assert times["reboot"].p50_s == pytest.approx(3 * 60, abs=2)
    assert times["replace"].p50_s == pytest.approx(25 * 60, abs=2)
    assert result.incidents["reboot"] == times["reboot"].count
    assert result.nodes_replaced == result.incidents["replace"]


def test_without_faults_only_checkpoints_cost() -> None:
    result = result_of(faults_per_1000_node_days=0.0)

    assert result.ettr == pytest.approx(30 / 31, abs=0.002)
    assert result.closed_form_ettr == pytest.approx(30 / 31)
    assert (result.incidents, result.restarts, result.mean_time_to_failure_s) == ({}, {}, None)


def test_lemons_are_replaced_for_good() -> None:
    days = 20.0 if is_quick() else 60.0
    alike, lemons = (
        result_of(days=days, faults_per_1000_node_days=100.0, has_lemons=has_lemons)
        for has_lemons in (False, True)
    )

    assert lemons.repeat_offenders > alike.repeat_offenders


def test_a_trial_is_the_same_each_time_and_another_seed_is_another_trial() -> None:
    assert result_of() == result_of()
    assert result_of().ettr != result_of(seed=1).ettr


def test_every_interruption_of_the_source_has_its_kind() -> None:
    assert sum(count for _, count in FAULT_KINDS) == 419


def test_a_job_that_runs_out_of_retries_has_failed() -> None:
    result = result_of(max_retries=0)

    assert result.job_phase == "failed"
    assert "no hardware retries allowed" in result.job_reason


def test_a_job_larger_than_its_fleet_is_refused() -> None:
    with pytest.raises(ConfigError, match="--job-nodes 41: expected at most the 40 nodes"):
        result_of(job_nodes=41)


@pytest.mark.parametrize(
    ("values", "percent", "result"),
    [([7], 99, 7), ([1, 2, 3, 4], 50, 2), ([4, 3, 2, 1], 75, 3), ([1, 2, 3, 4], 76, 4)],
)
def test_a_percentile_is_one_of_the_values(values, percent, result) -> None:
    assert percentile(values, percent) == result


# the command

SMALL = ["--nodes", "16", "--days", "5", "--faults-per-1000-node-days", "500"]


def run(*args: str):
    return CliRunner().invoke(simulate, [*SMALL, *args], standalone_mode=True)


def test_the_table_says_that_it_is_simulated() -> None:
    result = run()

    assert result.exit_code == 0
    assert result.stdout.startswith("Simulated:            5 days, a job on 16 of 16 nodes\n")
    assert "ETTR by closed form:" in result.stdout
    assert "TIME TO REPAIR" in result.stdout


def test_the_guide_shows_what_the_command_prints() -> None:
    guide = Path(__file__).parents[2] / "docs/howto/simulate-a-fleet.md"
    block = guide.read_text(encoding="utf-8").split("```console\n")[1]
    command, *shown = block.partition("...")[0].splitlines()

    done = CliRunner().invoke(simulate, command.split()[3:])

    assert done.output.splitlines()[: len(shown)] == shown


def test_json_says_so_too_and_holds_everything() -> None:
    plain = json.loads(run("--spares", "2", "--lemons", "--output", "json").stdout)

    assert plain["simulated"] is True
    assert plain["trial"]["nodes"] == 18
    assert plain["trial"]["job_nodes"] == 16
    assert plain["trial"]["has_lemons"] is True
    assert 0 < plain["ettr"] < 1


def test_the_policy_is_read_from_a_file_and_an_option_goes_before_it(tmp_path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[nodes]\nmax_unavailable = "5%"\noffender_faults = 9\n', encoding="utf-8")

    nodes = json.loads(
        run("--config", str(path), "--max-unavailable", "2", "--output", "json").stdout
    )["trial"]["config"]["nodes"]

    assert nodes["offender_faults"] == 9
    assert nodes["max_unavailable"] == {"count": 2, "percent": None}


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--nodes", "0", "1<=x<=100000"),
        ("--spares", "-1", "0<=x<=100000"),
        ("--job-nodes", "0", "1<=x<=200000"),
        ("--days", "0", "0<x<=3650"),
        ("--faults-per-1000-node-days", "-1", "0<=x<=100000"),
        ("--reboot-time", "soon", "not a duration such as 90s"),
        ("--replace-time", "31d", "not a duration from 0s to 30d"),
        ("--checkpoint-every", "0s", "not a duration from 1s to 30d"),
        ("--max-unavailable", "most", "neither a count such as 3 nor a percentage such as 20%"),
        ("--max-unavailable", "101%", "a percentage must be from 0 to 100"),
        ("--max-retries", "-1", "x>=0"),
        ("--seed", "x", "not a valid integer"),
    ],
)
def test_bad_input_is_named_with_what_was_expected(option, value, expected) -> None:
    result = run(option, value)

    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr
    assert expected in result.stderr
    assert result.stdout == ""
