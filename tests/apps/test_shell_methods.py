"""How ``holdfast nodes shell`` gets onto nodes that are not those of Kubernetes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from written_runs import machine, node

from holdfast.adapters.local.machine import MARK
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.shell.methods import ShellMethod, argv, on_slurm
from holdfast.apps.views.nodes import node_status
from holdfast.model.errors import ConfigError
from holdfast.model.nodes import Phase
from tests.ports.builders import a_node

NODE = node_status(a_node(name="gpu-17"), run="lab", notices=(), incidents=())
OF_HYPERPOD = "aws:///usw2-az2/sagemaker/cluster/hyperpod-abc123def456-i-0592464924bd45322"


@pytest.mark.parametrize("phase", Phase)
def test_slurm_is_asked_while_it_starts_something_there(phase: Phase) -> None:
    method = on_slurm(replace(NODE, phase=phase))

    assert method is (ShellMethod.SRUN if phase is Phase.SCHEDULABLE else ShellMethod.SSH)


@pytest.mark.parametrize(
    ("method", "command", "is_terminal", "expected"),
    [
        (ShellMethod.SSH, (), True, ["ssh", "-t", "gpu-17"]),
        (ShellMethod.SSH, ("ls", "a b; c"), False, ["ssh", "gpu-17", "ls 'a b; c'"]),
        (
            ShellMethod.SRUN,
            (),
            True,
            ["srun", "--nodelist", "gpu-17", "--nodes=1", "--ntasks=1", "--pty", "bash", "-l"],
        ),
        (
            ShellMethod.SRUN,
            ("ls", "a b"),
            False,
            ["srun", "--nodelist", "gpu-17", "--nodes=1", "--ntasks=1", "ls", "a b"],
        ),
    ],
)
def test_a_program_takes_over(method, command, is_terminal, expected) -> None:
    assert argv(method, NODE, command, is_terminal=is_terminal) == expected


@pytest.mark.parametrize(
    ("provider_id", "target"),
    [
        ("i-0592464924bd45322", "i-0592464924bd45322"),
        ("aws:///us-east-1a/i-0592464924bd45322", "i-0592464924bd45322"),
        (OF_HYPERPOD, "sagemaker-cluster:abc123def456_workers-i-0592464924bd45322"),
    ],
)
def test_session_manager_knows_machines_of_ec2_and_of_hyperpod(provider_id, target) -> None:
    there = replace(NODE, provider_id=provider_id, group="workers")

    plain = argv(ShellMethod.SSM, there, (), is_terminal=True)
    command = argv(ShellMethod.SSM, there, ("ls", "a b"), is_terminal=False)

    assert plain == ["aws", "ssm", "start-session", "--target", target]
    assert command[len(plain) :] == [
        "--document-name", "AWS-StartInteractiveCommand",
        "--parameters", '{"command": ["ls \'a b\'"]}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("provider_id", "reported"),
    [("", "not known"), ("gce://x/y/z", "gce://x/y/z"), (OF_HYPERPOD, "the instance group of")],
)
def test_what_session_manager_does_not_know_is_reported(provider_id, reported) -> None:
    with pytest.raises(ConfigError, match=reported):
        argv(
            ShellMethod.SSM, replace(NODE, provider_id=provider_id, group=""), (), is_terminal=True
        )


def shell(home: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "nodes", "shell", *argv],
        env={**os.environ, "HOLDFAST_HOME": str(home), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )


def test_on_this_machine_a_command_has_the_environment_of_the_node(runs) -> None:
    runs.add("train", nodes=(1, 2), ranks=(2, 1))

    done = shell(runs.home, "0", "--", "sh", "-c", f"pwd; echo ${MARK} $HOLDFAST_NODE; exit 9")

    assert done.returncode == 9
    assert done.stdout.split() == [
        str(runs.directory("train").node(node(2)).path),
        machine(2),
        node(2),
    ]


@pytest.mark.parametrize(
    ("argv", "code", "reported"),
    [
        (("0",), ExitCode.BAD_INPUT, "standard input is not a terminal: pass a command after --"),
        (("0", "--", "missing-program"), ExitCode.BAD_INPUT, "missing-program not found"),
        (
            ("0", "--via", "ssh", "--", "true"),
            ExitCode.BAD_INPUT,
            "does not apply to nodes on this machine",
        ),
        (("9", "--", "true"), ExitCode.FAILED, "rank 9 is not running"),
    ],
)
def test_what_cannot_be_run_is_reported(runs, argv, code, reported) -> None:
    runs.add("train", nodes=(1,), ranks=(1,))

    done = shell(runs.home, *argv)

    assert (done.returncode, done.stdout) == (code, "")
    assert reported in done.stderr


def test_a_dry_run_shows_the_command_line(runs) -> None:
    runs.add("train", nodes=(1,), ranks=(1,))

    done = shell(runs.home, "0", "--dry-run", "--", "ls", "a b")

    assert (done.returncode, done.stdout) == (ExitCode.OK, "would run: ls 'a b'\n")


def test_a_node_without_power_has_no_shell(runs) -> None:
    runs.add("train", nodes=(1,), ranks=(1,))
    runs.directory("train").node(node(1)).processes.unlink()

    assert "is powered off" in shell(runs.home, "0", "--", "true").stderr
