import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.providers.settings import CommandSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView, Phase
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

TIMEOUT_S = 90.0
NODE = a_node(Phase.REPLACING, provider_id="rack-3/7")

NOTE = """
import os, sys
with open(sys.argv[1], "a", encoding="utf-8") as out:
    names = ("ACTION", "NODE", "PROVIDER_ID", "TOKEN", "REASON")
    print(sys.argv[2:], [os.environ["HOLDFAST_" + name] for name in names], file=out)
"""


def build(reboot: list[str], replace: list[str] | None = None, **settings: Any) -> Any:
    command = CommandSettings(reboot=tuple(reboot), replace=tuple(replace or reboot), **settings)
    config = ProviderConfig(replace=ProviderName.COMMAND, command=command)
    return build_provider(config, FakeClock())


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


def test_arguments_are_filled_in_and_the_environment_says_the_same(tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["--{action}", "{node}/{provider_id}", "{token}", "{reason}", "plain"]
    provider = build(python(NOTE, str(out), *argv))

    provider.reboot(NODE, "i/1")
    provider.replace(NODE, "i/2")

    reason = "NvidiaGpuXidErrorPendingReplacement"
    assert out.read_text().splitlines() == [
        f"['--reboot', 'node-1/rack-3/7', 'i/1', '{reason}', 'plain']"
        f" ['reboot', 'node-1', 'rack-3/7', 'i/1', '{reason}']",
        f"['--replace', 'node-1/rack-3/7', 'i/2', '{reason}', 'plain']"
        f" ['replace', 'node-1', 'rack-3/7', 'i/2', '{reason}']",
    ]


def test_no_shell_and_no_second_filling_reads_a_value(tmp_path: Path) -> None:
    out = tmp_path / "out"
    evil = "$(touch /tmp/x); {token} `id` *"
    provider = build(python(NOTE, str(out), "{provider_id}"))

    provider.reboot(a_node(provider_id=evil), "t/1")

    assert out.read_text().startswith(f"[{evil!r}]")


def test_other_braces_mean_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ['{"node": "{node}"}', "{}", "{ token }"]

    build(python(NOTE.replace("{", "{ "), str(out), *argv)).reboot(NODE, "t/1")

    assert out.read_text().startswith("""['{"node": "node-1"}', '{}', '{ token }']""")


def test_an_accepted_order_runs_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    provider = build(python(NOTE, str(out)))

    for token in ("t/1", "t/1", "t/2"):
        provider.replace(NODE, token)

    assert len(out.read_text().splitlines()) == 2


def test_a_refused_order_runs_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    provider = build(python(NOTE + "sys.exit(1)", str(out)))

    for _ in range(2):
        with pytest.raises(ProviderError):
            provider.replace(NODE, "t/1")

    assert len(out.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [(68, NodeGone), (75, RetryLater), (1, ProviderError), (2, ProviderError), (69, ProviderError)],
)
def test_the_exit_code_says_what_became_of_the_order(
    status: int, expected: type[ProviderError]
) -> None:
    script = f"import sys; print('why', file=sys.stderr); sys.exit({status})"

    with pytest.raises(expected, match=f"to reboot node-1 ended with {status}: why") as caught:
        build(python(script)).reboot(NODE, "t/1")

    assert type(caught.value) is expected
    if isinstance(caught.value, RetryLater):
        assert caught.value.after == timedelta(seconds=30)


def test_a_command_that_a_signal_ends_may_have_carried_the_order_out() -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"

    with pytest.raises(RetryLater, match=f"ended with -{signal.SIGTERM.value}") as caught:
        build(python(script)).reboot(NODE, "t/1")

    assert caught.value.is_outcome_unknown


def test_the_end_of_what_it_wrote_is_reported_however_much_that_was() -> None:
    script = "import sys; sys.stderr.write('x' * 1_000_000 + ' the end \\n'); sys.exit(1)"

    with pytest.raises(ProviderError, match=r"x the end$") as caught:
        build(python(script)).reboot(NODE, "t/1")

    assert len(str(caught.value)) < 1000


def test_what_runs_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    provider = build(python(script), timeout=timedelta(seconds=2))

    with pytest.raises(RetryLater, match=r"timed out after 2 s and was killed") as caught:
        provider.reboot(NODE, "t/1")

    assert caught.value.is_outcome_unknown
    end = time.monotonic() + TIMEOUT_S
    while is_running(int(pid_file.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_process_left_behind_does_not_hold_up_the_answer() -> None:
    script = "import subprocess; subprocess.Popen(['sleep', '5'], start_new_session=True)"

    build(python(script), timeout=timedelta(seconds=4)).reboot(NODE, "t/1")


@pytest.mark.parametrize(
    ("argv", "node"),
    [
        (["/no/such/program"], NODE),
        ([os.devnull], NODE),
        (["echo", "{provider_id}"], a_node(provider_id="a\0b")),
    ],
)
def test_what_cannot_be_run_is_reported(argv: list[str], node: NodeView) -> None:
    with pytest.raises(ProviderError, match=f"cannot run {argv[0]}"):
        build(argv).reboot(node, "t/1")
