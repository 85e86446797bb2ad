"""``holdfast check pair`` and ``check serve``: two ends of one machine, honest ones and others."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from checked_node import CheckedNode
from pair_node import TOKEN, listening, serving, welcomed
from played_pingpong import add_efa, pingpong

from holdfast.adapters.host.pairs.channel import (
    PairConnection,
    authenticate_as_client,
    authenticate_as_server,
)
from holdfast.adapters.telemetry.check_summary import read_summary
from holdfast.apps.checks.pair import Other, session
from holdfast.apps.listen_address import ListenAddress
from holdfast.apps.main import run
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from tests.engines.ports import free_port

TCP = 'fabric_provider = "tcp"\n'
UNBOUNDED = """
[thresholds.default]
pair_tcp_us = 0
pair_tcp_mb_per_s = 0
pair_fabric_us = 0
pair_fabric_mb_per_s = 0
"""
"""No verdict may depend on how busy the machine is."""


class Asking(CheckedNode):
    """The node that asks."""

    def ask(self, port: int, *options: str, token: str = TOKEN) -> tuple[int, dict, str]:
        """Exit code, document (empty if none was printed) and standard error."""
        file = self.folder / "token"
        file.write_text(f"{token}\n")
        argv = ["check", "pair", "--with", f"127.0.0.1:{port}", "--token-file", str(file)]
        code = run([*argv, "--config", str(self.write_config()), *options, "--output", "json"])
        captured = self.capture()
        result = json.loads(captured.out) if captured.out else {}
        parts = {part["name"]: part for part in result.get("parts", ())}
        return code, {**result, "parts": parts}, captured.err


@pytest.fixture
def node(tmp_path, capfd) -> Asking:
    made = Asking(tmp_path, capfd.readouterr)
    made.more = UNBOUNDED
    return made


def other_at(port: int) -> Other:
    return Other(address=ListenAddress("127.0.0.1", port), token=TOKEN, wait=timedelta(seconds=30))


# Healthy


@pytest.mark.tools
def test_tcp_and_the_real_fi_pingpong_measure_between_two_ends(node) -> None:
    node.real("fi_pingpong")
    node.more = TCP + UNBOUNDED
    with serving(node.write_config()) as (port, reported):
        code, result, _ = node.ask(port)

    assert code == 0, result
    assert result["outcome"] == "passed"
    assert {name: part["outcome"] for name, part in result["parts"].items()} == {
        "tcp": "passed", "fi_pingpong": "passed",
    }  # fmt: skip
    measured = [name for part in result["parts"].values() for name in part["measured"]]
    assert sorted(measured) == [
        "pair_fabric_mb_per_s", "pair_fabric_us", "pair_tcp_mb_per_s", "pair_tcp_us",
    ]  # fmt: skip
    assert all(
        value > 0 for part in result["parts"].values() for value in part["measured"].values()
    )
    assert result["node"] == result["peer"] == os.uname().nodename
    assert reported == ["127.0.0.1: tested"]


def test_where_there_is_no_fabric_tcp_alone_is_tested_and_this_is_reported(node) -> None:
    with serving(node.write_config()) as (port, _):
        code, result, _ = node.ask(port)

    assert (code, result["outcome"]) == (0, "passed")
    assert result["parts"]["fi_pingpong"]["outcome"] == "skipped"
    assert "no EFA device found" in result["parts"]["fi_pingpong"]["detail"]


def test_every_efa_device_is_tested_and_the_slowest_counts(node) -> None:
    add_efa(node.root, "rdmap0s29", "rdmap0s30")
    node.tool("fi_pingpong", pingpong(rate="'70.00' if device == 'rdmap0s30-rdm' else '2122.41'"))
    with serving(node.write_config()) as (port, _):
        _, result, _ = node.ask(port, "--only", "fi_pingpong")

    part = result["parts"]["fi_pingpong"]
    assert part["outcome"] == "passed", part
    assert part["measured"]["pair_fabric_mb_per_s"] == 70.0


# Thresholds


def test_a_link_worse_than_its_thresholds_fails(node) -> None:
    node.more = "[thresholds.default]\npair_tcp_mb_per_s = 1e9\npair_tcp_us = 1e-3\n"
    with serving(node.write_config()) as (port, _):
        code, result, _ = node.ask(port, "--only", "tcp")

    assert list(result["parts"]) == ["tcp"]
    assert (code, result["parts"]["tcp"]["outcome"]) == (1, "failed")
    assert "pair_tcp_mb_per_s is " in result["parts"]["tcp"]["detail"]
    assert "pair_tcp_us is " in result["parts"]["tcp"]["detail"]


# Tools that fail, hang or lie


@pytest.mark.parametrize(
    ("code", "outcome", "why"),
    [
        ("print('Error at iteration=1 size=64 byte=3'); sys.exit(255)", "failed", "data corrupted"),
        ("sys.exit(61)", "unknown", "libfabric finds no such provider"),
        ("os.kill(os.getpid(), 9)", "unknown", "terminated by signal 9"),
        ("sys.exit(0)", "unknown", "no results in the output"),
    ],
)
def test_a_pair_is_judged_by_what_its_tool_says(node, code, outcome, why) -> None:
    node.more = TCP
    node.tool("fi_pingpong", pingpong(code=code, provider="tcp"))
    with serving(node.write_config()) as (port, _):
        _, result, _ = node.ask(port, "--only", "fi_pingpong")

    part = result["parts"]["fi_pingpong"]
    assert part["outcome"] == outcome, part
    assert why in part["detail"]
    assert len(part["findings"]) == (outcome == "failed")
    for finding in part["findings"]:
        assert (finding["reason"], finding["remedy"]) == ("PairTestFailed", "none")


def test_after_a_device_that_fails_both_ends_go_on_with_the_next(node) -> None:
    add_efa(node.root, "rdmap0s29", "rdmap0s30")
    says = "print('Error at iteration=1 size=64 byte=3')"
    code = f"if '-c' in argv and device == 'rdmap0s29-rdm': {says}"
    node.tool("fi_pingpong", pingpong(code=code))
    with serving(node.write_config()) as (port, reported):
        _, result, _ = node.ask(port, "--only", "fi_pingpong")

    [finding] = result["parts"]["fi_pingpong"]["findings"]
    assert finding["message"].startswith("rdmap0s29-rdm: data corrupted")
    assert reported == ["127.0.0.1: tested"]


def test_what_the_tool_of_the_other_end_says_is_handed_on(node) -> None:
    node.more = TCP
    node.tool(
        "fi_pingpong",
        f"""
import pathlib, time
said = pathlib.Path({str(node.folder / "said")!r})
if '-B' in argv:
    print('no such device', flush=True)
    said.touch()
while not said.exists():
    time.sleep(0.01)
sys.exit(103)
""",
    )
    with serving(node.write_config()) as (port, _):
        _, result, _ = node.ask(port, "--only", "fi_pingpong")

    assert result["parts"]["fi_pingpong"]["outcome"] == "unknown"
    assert "output of the peer: no such device" in result["parts"]["fi_pingpong"]["detail"]


def test_ends_that_do_not_fit_say_so(node, tmp_path, capfd) -> None:
    node.tool("fi_pingpong", "sys.exit(1)")
    other = CheckedNode(tmp_path / "other", capfd.readouterr)
    add_efa(other.root, "rdmap0s29")
    add_efa(node.root, "rdmap0s29", "rdmap0s30")
    with serving(other.write_config()) as (port, _):
        missing = node.ask(port, "--only", "fi_pingpong")[1]["parts"]["fi_pingpong"]
        other.tool("fi_pingpong", "sys.exit(1)")
        fewer = node.ask(port, "--only", "fi_pingpong")[1]["parts"]["fi_pingpong"]
        node.more = TCP
        provider = node.ask(port, "--only", "fi_pingpong")[1]["parts"]["fi_pingpong"]

    assert {one["outcome"] for one in (missing, fewer, provider)} == {"skipped"}
    assert "127.0.0.1: fi_pingpong not found" in missing["detail"]
    assert "has 1 devices, the peer 2" in fewer["detail"]
    assert "configured for provider efa" in provider["detail"]


# Other ends that break off, lie, or are somebody else


def test_an_end_that_dies_in_the_middle_is_a_fault_and_the_rest_says_nothing(node) -> None:
    node.more = TCP
    node.tool("fi_pingpong", "sys.exit(1)")
    with listening(welcomed(lambda channel: channel.receive())) as port:  # type: ignore[arg-type]
        code, result, _ = node.ask(port)

    assert (code, result["outcome"]) == (1, "failed")
    assert "a TCP connection failed: the " in result["parts"]["tcp"]["detail"]
    assert result["parts"]["fi_pingpong"]["outcome"] == "unknown"
    assert result["peer"] == "other"


def _swallows(channel: PairConnection) -> None:
    channel.receive()
    while (ping := channel.read(64))[:1] == b"+":
        channel.write(ping)
    while channel.read(64 * 1024)[:1] == b"+":
        pass
    channel.send({"bytes": 64})


def test_bytes_that_did_not_arrive_are_noticed_and_nothing_is_asked_after_that(node) -> None:
    node.more = TCP
    node.tool("fi_pingpong", "sys.exit(1)")
    with listening(welcomed(_swallows)) as port:
        _, result, _ = node.ask(port)

    assert result["parts"]["tcp"]["outcome"] == "failed"
    assert "did not receive all data that was sent" in result["parts"]["tcp"]["detail"]
    assert result["parts"]["fi_pingpong"]["outcome"] == "unknown"
    assert "is unusable: " in result["parts"]["fi_pingpong"]["detail"]


def _reads_slowly(channel: PairConnection) -> None:
    channel.receive()
    while (ping := channel.read(64))[:1] == b"+":
        channel.write(ping)
    count = 1
    while channel.read(64 * 1024)[:1] == b"+":
        count += 1
        time.sleep(0.005)  # 13 MB/s
    channel.send({"bytes": count * 64 * 1024})
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        channel.write(b"+" * 64 * 1024)
    channel.write(b"." * 64 * 1024)


def test_the_slower_direction_counts_until_the_last_byte_has_arrived(node) -> None:
    with listening(welcomed(_reads_slowly)) as port:
        _, result, _ = node.ask(port, "--only", "tcp")

    part = result["parts"]["tcp"]
    assert part["outcome"] == "passed", part
    assert part["measured"]["pair_tcp_mb_per_s"] < 20


def test_a_wrong_token_is_reported_at_both_ends_and_is_no_result(node) -> None:
    with serving(node.write_config()) as (port, reported):
        code, result, said = node.ask(port, token=TOKEN.upper())

    assert (code, result) == (1, {"parts": {}})
    assert "token rejected by the server; use the same --token-file on both nodes" in said
    assert reported == ["127.0.0.1: token mismatch; use the same --token-file on both nodes"]


def _claims(connection: socket.socket) -> None:
    connection.sendall(b"holdfast-pair/1 00\n")
    connection.recv(1000)
    connection.sendall(b"00" * 32 + b"\n")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "not holdfast check"),
        (lambda connection: connection.sendall(b"holdfast-pair/2 00\n"), "has another version"),
        (_claims, "token mismatch; use the same --token-file on both nodes"),
        (lambda connection: connection.sendall(b"x" * 300_000), "a line that is too long"),
        (lambda connection: None, "closed the connection"),
    ],
)  # fmt: skip
def test_what_is_not_the_other_end_gives_no_result(node, answer, why) -> None:
    with listening(answer) as port:
        code, result, said = node.ask(port)

    assert (code, result) == (1, {"parts": {}})
    assert why in said


def test_a_proof_that_was_heard_is_of_no_use_again() -> None:
    heard: list[bytes] = []

    def eavesdrop(connection: socket.socket) -> None:
        connection.sendall(b"holdfast-pair/1 " + b"ab" * 32 + b"\n")
        heard.append(connection.recv(1000))

    with (
        listening(eavesdrop) as port,
        socket.create_connection(("127.0.0.1", port)) as one,
        pytest.raises(BackendError),
    ):
        authenticate_as_client(one, TOKEN)

    refused: list[str] = []

    def serve(connection: socket.socket) -> None:
        try:
            authenticate_as_server(connection, TOKEN)
        except BackendError as error:
            refused.append(str(error))

    with listening(serve) as port, socket.create_connection(("127.0.0.1", port)) as one:
        one.recv(1000)
        one.sendall(heard[0])
        assert one.recv(100) == b"refused\n"
    assert refused == ["token mismatch; use the same --token-file on both nodes"]


def test_the_server_outlives_strangers(node) -> None:
    with serving(node.write_config()) as (port, reported):
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b""):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(said)
        with session(other_at(port)) as (channel, name):
            channel.send({"do": "bye"})
            assert name == os.uname().nodename
            with pytest.raises(BackendError, match="closed"):
                channel.receive()

    assert reported.count("127.0.0.1: tested") == 1
    assert len(reported) == 4


def test_one_pair_is_tested_at_a_time_and_the_next_waits(node) -> None:
    with serving(node.write_config()) as (port, _), ExitStack() as first:
        first.enter_context(session(other_at(port)))
        code, _, said = node.ask(port, "--wait", "300ms")
        assert code == 1
        assert "is busy: it is being tested with another node; try again later" in said

        threading.Timer(0.3, first.close).start()
        with session(other_at(port)) as (_, name):
            assert name == os.uname().nodename


def test_it_waits_until_the_other_end_listens(node) -> None:
    port = free_port()
    argv = [sys.executable, "-m", "holdfast", "check", "serve", "--listen", str(port)]
    environment = {**os.environ, "HOLDFAST_CHECK_TOKEN": TOKEN}
    server = subprocess.Popen([*argv, "--config", str(node.write_config())], env=environment)
    try:
        with session(other_at(port)) as (_, name):
            assert name == os.uname().nodename
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 143


# Input


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--only", "ping"], "'ping' is not one of"),
        (["--rank-from", "slurm"], "SLURM_PROCID is '', expected 0 or 1"),
        (["--rank-from", "pbs"], "'pbs' is not one of"),
        (["--with", "127.0.0.1:99999999"], "nor a port from 0 to 65535"),
        (["--token-file", "/nowhere/token"], "--token-file /nowhere/token: "),
        (["--wait", "soon"], "soon"),
    ],
)
def test_bad_input_is_refused_before_anything_is_begun(node, options, why) -> None:
    code, result, said = node.ask(1, *options)

    assert (code, result) == (2, {"parts": {}})
    assert why in said


def test_without_a_token_or_a_peer_it_says_what_to_do(monkeypatch, capfd, tmp_path) -> None:
    monkeypatch.delenv("HOLDFAST_CHECK_TOKEN", raising=False)
    assert run(["check", "serve"]) == 2
    assert "openssl rand -hex 32" in capfd.readouterr().err

    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", "short")
    assert run(["check", "pair", "--with", "127.0.0.1"]) == 2
    assert "16 characters or more" in capfd.readouterr().err

    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)
    assert run(["check", "pair"]) == 2
    assert "--with is missing" in capfd.readouterr().err


@pytest.mark.parametrize("host", ["nowhere.invalid", "127.0.0.1:1"])
def test_an_end_that_is_not_there_is_reported_and_is_no_result(monkeypatch, capfd, host) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)

    assert run(["check", "pair", "--with", host, "--wait", "0s"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "cannot be resolved" in captured.err or "`holdfast check serve` there" in captured.err


def test_what_became_of_a_test_is_left_for_whoever_began_it(node, tmp_path) -> None:
    result = tmp_path / "result"
    left, short = ("--only", "tcp", "--result", str(result)), 'pair_time = "100ms"\n'
    node.more = short + UNBOUNDED
    with serving(node.write_config()) as (port, _):
        node.ask(port, *left)
        passed = read_summary(result.read_text(encoding="utf-8"))
        node.more = f"{short}[thresholds.default]\npair_tcp_us = 0\npair_tcp_mb_per_s = 1e9\n"
        node.ask(port, *left)
        failed = read_summary(result.read_text(encoding="utf-8"))
        node.ask(port, *left, token="another, which is as long")  # noqa: S106
        unknown = read_summary(result.read_text(encoding="utf-8"))

    outcomes = [said.outcome for said in (passed, failed, unknown)]
    assert outcomes == [Outcome.PASSED, Outcome.FAILED, Outcome.UNKNOWN]
    assert failed.bounds == {"pair_tcp_mb_per_s": 1e9}
    assert set(passed.measured) == {"pair_tcp_mb_per_s", "pair_tcp_us"}
    assert "token rejected" in unknown.summary


@pytest.mark.parametrize("time", ["0s", "11s", "soon"])
def test_a_time_that_measures_nothing_or_takes_for_ever_is_refused(capfd, tmp_path, time) -> None:
    config = tmp_path / "check.toml"
    config.write_text(f'pair_time = "{time}"\n')
    token = tmp_path / "token"
    token.write_text(TOKEN)

    code = run(
        ["check", "pair", "--with", "n", "--token-file", str(token), "--config", str(config)]
    )

    assert code == 2
    assert "pair_time" in capfd.readouterr().err


@pytest.mark.parametrize("listen", ["99999", "host:port", ":70000"])
def test_an_address_that_is_none_is_refused(monkeypatch, capfd, listen) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)

    assert run(["check", "serve", "--listen", listen]) == 2
    assert "--listen" in capfd.readouterr().err


def test_an_address_that_is_taken_or_not_ours_is_reported(node, capfd, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)
    with serving(node.write_config()) as (port, _):
        assert run(["check", "serve", "--listen", str(port)]) == 1
        assert (
            f"cannot listen at 127.0.0.1:{port}: Address already in use" in capfd.readouterr().err
        )
    assert run(["check", "serve", "--listen", "192.0.2.1:0"]) == 1
    assert "cannot listen at 192.0.2.1:0" in capfd.readouterr().err


# Both ends by one command


def test_the_platform_reports_which_end_a_process_is_and_strangers_are_passed_over(node) -> None:
    port = free_port()
    argv = [
        sys.executable, "-m", "holdfast", "check", "pair", "--rank-from", "kubernetes",
        "--with", f"127.0.0.1:{port}", "--only", "tcp", "--output", "json",
        "--config", str(node.write_config()),
    ]  # fmt: skip

    def start(rank: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "HOLDFAST_CHECK_TOKEN": TOKEN, "JOB_COMPLETION_INDEX": rank}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, encoding="utf-8", env=environment)

    first = start("0")
    deadline = time.monotonic() + 30
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"GET / HTTP/1.1\r\n")
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = start("1")
    served, requested = (end.communicate(timeout=60)[0] for end in (first, second))

    assert (first.returncode, second.returncode) == (0, 0)
    assert served == ""
    assert json.loads(requested)["outcome"] == "passed"


def test_an_end_that_nobody_visits_gives_up(monkeypatch, capfd) -> None:
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")

    argv = ["check", "pair", "--rank-from", "mpi", "--with", "127.0.0.1:0", "--wait", "300ms"]
    assert run(argv) == 1
    assert "no other node connected within 0.3 s" in capfd.readouterr().err


# The channel


@contextmanager
def a_channel() -> Iterator[tuple[PairConnection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            yield PairConnection(one), other


@pytest.mark.parametrize(
    ("limit", "stall", "why"),
    [(0, 9, "timed out"), (0.1, 9, "timed out"), (9, 0.1, "no progress for 0.1 s")],
)
def test_an_end_that_says_nothing_is_given_up(limit, stall, why) -> None:
    with a_channel() as (channel, other):
        channel.allow(timedelta(seconds=limit), stall=timedelta(seconds=stall))
        trickles = threading.Timer(0.02, other.sendall, [b"x"])
        trickles.start()
        with pytest.raises(BackendError, match=why):
            channel.receive()
        trickles.join()


@pytest.mark.parametrize("line", [b"[]\n", b"{\n", b"\xff\n", b"3\n"])
def test_what_is_no_message_is_reported(line) -> None:
    with a_channel() as (channel, other):
        other.sendall(line)
        with pytest.raises(BackendError, match="an invalid message"):
            channel.receive()


def test_a_config_that_cannot_be_read_is_reported(capfd, tmp_path: Path) -> None:
    file = tmp_path / "check.toml"
    file.write_text('[thresholds.default]\npair_tcp_us = "2 ms"\n')

    assert run(["check", "serve", "--config", str(file)]) == 2
    assert "expected a number" in capfd.readouterr().err
