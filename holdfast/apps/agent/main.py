"""``holdfast agent``: monitors one node and reports its health. Light: runs on every node."""

import argparse
import json
import os
import select
import signal
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.apps.agent.config import AgentConfig, KernelSource
from holdfast.apps.agent.extensions import added_detectors
from holdfast.apps.agent.probe import probe
from holdfast.apps.agent.session import AgentSession
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.listen_address import ListenAddress
from holdfast.detectors.contract import LOGS, Profile
from holdfast.detectors.line_trust import LONGEST_DRILL
from holdfast.kit.config import load_config
from holdfast.kit.processes import die_with_parent
from holdfast.kit.serial import to_plain
from holdfast.kit.signals import received
from holdfast.kit.systemd import notify_alive
from holdfast.kit.units import parse_duration
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.names import Reason
from holdfast.model.report import NodeReport

POLL_S: Final = 0.05
"""Polling interval of log files in seconds, where the kernel sends no notifications."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PLAIN: Final = (
    "node", "root", "kmsg", "boot_id_file", "report_dir", "heartbeat", "shadow", "logs_only",
)  # fmt: skip
"""Options that are also keys of the configuration file."""


def main(argv: list[str]) -> int:
    """Monitor this node until a termination signal, or read it once. Returns the exit code."""
    parser = command_line_parser()
    options = parser.parse_args(argv)
    if "drill" in options:  # set once: a reload of the configuration does not prolong it
        options.drill_until = SystemClock().now() + LONGEST_DRILL
    if "output" in options and not options.once:
        parser.error("--output requires --once")
    try:
        if "die_with_parent" in options:
            die_with_parent(options.die_with_parent or os.getppid())
        if options.check_config:
            added_detectors(load(options))
            _report("the configuration is valid")
        elif options.once:
            return _run_once(options)
        else:
            _watch(options)
    except ConfigError as error:
        for problem in error.problems:
            _report(problem)
        return ExitCode.BAD_INPUT
    return ExitCode.OK


def load(options: argparse.Namespace) -> AgentConfig:
    """Configuration file, if given, overridden by the options.

    Raises:
        ConfigError: it cannot be read.

    """
    config = load_config(options.config, AgentConfig) if options.config else AgentConfig()
    given: dict[str, Any] = {key: getattr(options, key) for key in _PLAIN if key in options}
    if "xid_profile" in options:
        given["profile"] = Profile(options.xid_profile)
    if "log_file" in options:
        given["log_files"] = tuple(options.log_file)
    if "json_log" in options:
        is_stdout = str(options.json_log) == "-"
        part = {"stdout": True} if is_stdout else {"file": options.json_log}
        given["log"] = replace(config.log, **part)
    if "kubernetes" in options:
        given["kubernetes"] = config.kubernetes or AgentKubernetes()
    if "metrics" in options:
        given["telemetry"] = replace(config.telemetry, listen=options.metrics)
    if "drill_until" in options:
        given["drill_until"] = options.drill_until
    else:
        _check_drill(config.drill_until, SystemClock().now())
    return replace(config, **given)


def _check_drill(until: datetime | None, now: datetime) -> None:
    if until is not None and until > (latest := now + LONGEST_DRILL):
        raise ConfigError(
            f"drill_until: {until.isoformat()} is more than one hour ahead; set a time until "
            f"{latest:%Y-%m-%dT%H:%M:%SZ}"
        )


def _run_once(options: argparse.Namespace) -> int:
    config = load(options)
    if config.source is KernelSource.FILES or "log_file" in options:
        _report(
            "log files are skipped, because they also contain earlier boots; evaluate them with: "
            "holdfast scan kernel-log"
        )
    try:
        report = probe(config)
    except BackendError as error:
        _report(str(error))
        return ExitCode.BAD_INPUT
    sys.stdout.write(_TEXTS[getattr(options, "output", "text")](report))
    unread = [notice for notice in report.notices if notice.reason == Reason.SOURCE_FAILED]
    for notice in unread:
        _report(notice.message)
    if report.faults:
        return ExitCode.FAILED
    is_log_unreadable = any(notice.device == LOGS for notice in unread)
    return ExitCode.BAD_INPUT if is_log_unreadable else ExitCode.OK


def _as_text(report: NodeReport) -> str:
    faults = [
        f"{fault.remedy}: {fault.reason} since {fault.since:%Y-%m-%d %H:%M:%S}: {fault.message}\n"
        for fault in report.faults
    ]
    return "".join(faults) or f"{report.node} has no fault that requires a remedy.\n"


def _as_json(report: NodeReport) -> str:
    return json.dumps(to_plain(report)) + "\n"


_TEXTS: Final = {"text": _as_text, "json": _as_json}


def _watch(options: argparse.Namespace) -> None:
    with received(_SIGNALS) as signals:
        config = load(options)
        session = AgentSession(config, added_detectors(config), _report)
        try:
            while signal.SIGHUP in _run(session, signals):
                session = _reloaded(session, options)
        finally:
            session.close()


def _reloaded(session: AgentSession, options: argparse.Namespace) -> AgentSession:
    """Session with the new configuration if it is valid, else the previous session."""
    try:
        config = load(options)
        added = added_detectors(config)
        session.close()
        renewed = AgentSession(config, added, _report)
    except ConfigError as error:
        for problem in error.problems:
            _report(problem)
        _report("the previous configuration stays in effect")
        session.close()
        return AgentSession(session.config, session.added, _report)
    _report("configuration reloaded")
    return renewed


def _run(session: AgentSession, signals: int) -> set[int]:
    """Run until signals arrive. Returns them; termination signals are returned alone."""
    clock = SystemClock()
    heartbeat = session.config.heartbeat
    reported = ""
    ready: list[int] = []
    while signals not in ready:
        try:
            wake_at = session.step()
            watched = [signals, *session.host.filenos()]
            reported = ""
        except BackendError as error:
            wake_at = clock.now() + heartbeat
            watched = [signals]  # new lines would wake the loop at once, repeatedly
            if str(error) != reported:
                reported = str(error)
                _report(f"{reported}; retrying every {heartbeat.total_seconds():g} s")
        notify_alive()
        ready, _, _ = select.select(watched, [], [], _pause_s(wake_at - clock.now(), session))
    caught = set(os.read(signals, select.PIPE_BUF))
    return caught - {signal.SIGHUP} or caught


def _pause_s(left: timedelta, session: AgentSession) -> float:
    pause = min(left, session.config.heartbeat).total_seconds()
    if session.host.is_polled():
        pause = min(pause, POLL_S)
    return max(pause, 0)


def _report(message: str) -> None:
    sys.stderr.write(f"holdfast agent: {message}\n")
    sys.stderr.flush()


def _duration(text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if duration <= timedelta(0):
        raise argparse.ArgumentTypeError("expected more than 0s")
    return duration


def _address(text: str) -> ListenAddress:
    try:
        return ListenAddress.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_EPILOG: Final = """\
Examples:
  holdfast agent --once
  holdfast agent --config /etc/holdfast/agent.toml
  holdfast agent --config /etc/holdfast/agent.toml --check-config
  holdfast agent --shadow --json-log - --report-dir /tmp/holdfast

Exits with 0 on SIGTERM and Ctrl-C, with 2 if a log cannot be read or reports cannot be written;
with --once, with 1 if a fault requires a remedy. SIGHUP reloads the configuration. Reading
/dev/kmsg requires root or the capability CAP_SYSLOG.
"""


def command_line_parser() -> argparse.ArgumentParser:
    """The options of the process."""
    parser = argparse.ArgumentParser(
        prog="holdfast agent",
        description="Monitor the health of this node: read its kernel log and report faults.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    defaults = AgentConfig()
    # fmt: off
    add("--config", type=Path, metavar="FILE", default=None,
        help="TOML configuration file; command-line options override it")
    add("--check-config", action="store_true", default=False,
        help="validate the configuration, its rule files and its plug-ins, and exit")
    add("--once", action="store_true", default=False,
        help="read everything once, print the report and exit")
    add("--output", choices=list(_TEXTS),
        help="output format of --once (default: text)")
    add("--node", metavar="NAME", help="name of the node in reports (default: the host name)")
    add("--root", type=Path, metavar="DIR", help="root directory of the machine's /proc, "
        f"/sys, /dev, /run and /var/log, for use in a container (default: {defaults.root})")
    add("--heartbeat", type=_duration, metavar="DURATION",
        help="heartbeat interval (default: 500ms)")
    add("--xid-profile", choices=[one.value for one in Profile],
        help="vendor whose rating of an XID to use where vendors disagree (default: hyperpod)")
    add("--shadow", action="store_true", help="report findings only, never request a repair")
    add("--logs-only", action="store_true", help="read logs only, not the state of the machine")
    add("--die-with-parent", nargs="?", const=0, type=int, metavar="PID",
        help="exit when the parent process ends; with PID, also if that process has already ended")
    # fmt: on
    _add_sources(parser)
    _add_readers(parser, defaults)
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("kernel log").add_argument
    # fmt: off
    add("--kmsg", type=Path, metavar="PATH",
        help="kernel log device, or a file with its records (default: /dev/kmsg below --root)")
    add("--log-file", action="append", type=Path, metavar="PATH",
        help="syslog file to follow; may be repeated; its lines need corroborating evidence "
             "(default: none; with --drill, /var/log/messages below --root)")
    add("--drill", action="store_true",
        help="for one hour, accept lines of log files and user-written lines of /dev/kmsg as "
             "kernel lines, to test the response to a fault")
    add("--boot-id-file", type=Path, metavar="PATH",
        help="file whose content changes at every boot (default: the kernel's boot_id, below "
             "--root)")
    # fmt: on


def _add_readers(parser: argparse.ArgumentParser, defaults: AgentConfig) -> None:
    add = parser.add_argument_group("reporting").add_argument
    # fmt: off
    add("--report-dir", type=Path, metavar="DIR",
        help=f"directory of report.json and heartbeat (default: {defaults.report_dir})")
    add("--json-log", type=Path, metavar="FILE",
        help="append HyperPod-compatible log lines to FILE; - is standard output")
    add("--metrics", type=_address, metavar="[HOST:]PORT",
        help="serve /metrics for Prometheus and /healthz (default host: 127.0.0.1)")
    add("--kubernetes", action="store_true",
        help="also report to the Node object named in NODE_NAME, with the pod's service account")
    # fmt: on


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
