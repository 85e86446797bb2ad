"""``holdfast agent``: watches one node and says how it is. Light: it runs on every node."""

import argparse
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.linux import LinuxHost, Logs
from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors, log_marks
from holdfast.engine.agent_loop import AgentLoop
from holdfast.kit.processes import die_with_parent
from holdfast.kit.units import parse_duration
from holdfast.model.errors import BackendError, ConfigError

POLL_S: Final = 0.05
"""Seconds between two looks at the log files where the kernel does not tell of news."""

_MESSAGES: Final = Path("/var/log/messages")


def main(argv: list[str]) -> int:
    """Watch this node until a signal asks to end. Returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        if "die_with_parent" in options:
            die_with_parent(options.die_with_parent or os.getppid())
        _watch(options)
    except ConfigError as error:
        for problem in error.problems:
            _say(problem)
        return ExitCode.BAD_INPUT
    return ExitCode.OK


def _watch(options: argparse.Namespace) -> None:
    clock = SystemClock()
    boot_id = _boot_id(options.boot_id_file)
    sink = ReportFiles(options.report_dir)
    last = sink.last()
    watchers = detectors(Profile(options.xid_profile))
    logs = Logs(
        kmsg=options.kmsg,
        log_files=tuple(options.log_file) if "log_file" in options else _default_log_files(),
        cursors=options.report_dir / "state" / "cursors.json",
    )
    host = LinuxHost(
        logs,
        boot_id=boot_id,
        resume=last is not None and last.boot_id == boot_id,
        marks=log_marks(watchers),
        clock=clock,
    )
    loop = AgentLoop(
        host=host,
        sink=sink,
        detectors=watchers,
        node=options.node,
        clock=clock,
        heartbeat=options.heartbeat,
    )
    with closing(host), _asked_to_end() as end:
        _run(loop, host, clock, options.heartbeat, end)


def _run(
    loop: AgentLoop, host: LinuxHost, clock: SystemClock, heartbeat: timedelta, end: int
) -> None:
    told = ""
    ready: list[int] = []
    while end not in ready:
        try:
            wake_at = loop.step()
            watched = [end, *host.filenos()]
            told = ""
        except BackendError as error:
            wake_at = clock.now() + heartbeat
            watched = [end]  # news would wake us at once, again and again
            if str(error) != told:
                told = str(error)
                _say(f"{told}; trying again every {heartbeat.total_seconds():g} s")
        pause = min(wake_at - clock.now(), heartbeat).total_seconds()
        if host.is_polled():
            pause = min(pause, POLL_S)
        ready, _, _ = select.select(watched, [], [], max(pause, 0))


@contextmanager
def _asked_to_end() -> Iterator[int]:
    """Yields a descriptor that becomes readable on SIGTERM and on Ctrl-C."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signals = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.signal(number, lambda *_: None) for number in signals]
    woken_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in zip(signals, handlers, strict=True):
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _default_log_files() -> tuple[Path, ...]:
    return (_MESSAGES,) if _MESSAGES.exists() else ()


def _boot_id(path: Path) -> str:
    try:
        boot_id = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the boot id from {path}: {error}") from error
    if not boot_id:
        raise ConfigError(f"cannot read the boot id from {path}: it is empty")
    return boot_id


def _say(message: str) -> None:
    sys.stderr.write(f"holdfast agent: {message}\n")
    sys.stderr.flush()


def _duration(text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if duration <= timedelta(0):
        raise argparse.ArgumentTypeError("it must be longer than 0s")
    return duration


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast agent",
        description="Watch the health of this node: read its kernel log and report its faults.",
        epilog="Ends with 0 on SIGTERM and Ctrl-C, with 2 if a log cannot be read or reports "
        "cannot be written. Reading /dev/kmsg takes root or the capability CAP_SYSLOG.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--node", default=os.uname().nodename, metavar="NAME", help="name of the node in reports")
    # fmt: off
    add("--kmsg", default=Path("/dev/kmsg"), type=Path, metavar="PATH",
        help="the kernel's log: the device, or a file that holds its records")
    add("--log-file", action="append", type=Path, metavar="PATH", default=argparse.SUPPRESS,
        help=f"a syslog file to follow; can be given again (default: {_MESSAGES}, if it exists)")
    add("--boot-id-file", default=Path("/proc/sys/kernel/random/boot_id"), type=Path,
        metavar="PATH", help="holds another text after every boot")
    add("--report-dir", default=Path("/run/holdfast"), type=Path, metavar="DIR",
        help="where to keep report.json and heartbeat")
    add("--heartbeat", default="500ms", type=_duration, metavar="DURATION",
        help="time between two signs of life, such as 500ms")
    add("--xid-profile", default=Profile.HYPERPOD.value, choices=[one.value for one in Profile],
        help="whose opinion of an XID counts where vendors disagree")
    add("--die-with-parent", nargs="?", const=0, type=int, metavar="PID", default=argparse.SUPPRESS,
        help="end when the process that started this one ends; with PID also if it has already")
    # fmt: on
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
