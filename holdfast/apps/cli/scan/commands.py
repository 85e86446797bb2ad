"""``holdfast scan``: evaluates captured kernel logs and tool output."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader
from itertools import islice
from typing import Final, cast

import click

from holdfast.apps.cli.help import FullHelpGroup
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    is_document,
    output_option,
    print_next,
    print_rows,
)
from holdfast.apps.cli.scan.files import FILE_COMMANDS, show_verdicts
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.detectors.contract import Detector, LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.judgement import Judgement, undecided, whole
from holdfast.detectors.kernel_log import KernelLine, KernelLog, kernel_line
from holdfast.detectors.table import detectors, log_keywords
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault, Finding

BLOCK: Final = 256 * 1024
"""Maximum bytes per read."""

PAGE: Final = 1000
"""Maximum findings per table; a log with more gets several tables."""


_NO_LOG: Final = "no line is a kernel message"

_SOME_BOOT: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    """Finding and its place in a file."""

    file: str
    line_number: int
    at: datetime | None
    meaning: str
    finding: Finding


_COLUMNS: Final = (
    Column[_Hit](title="file", cell=lambda hit: hit.file),
    Column[_Hit](title="line", cell=lambda hit: hit.line_number),
    Column[_Hit](
        title="time", cell=lambda hit: hit.at and f"{hit.at:%Y-%m-%d %H:%M:%S}", wide=True
    ),
    Column[_Hit](title="code", cell=lambda hit: hit.finding.code),
    Column[_Hit](title="meaning", cell=lambda hit: hit.meaning, wide=True),
    Column[_Hit](title="device", cell=lambda hit: hit.finding.device),
    Column[_Hit](title="severity", cell=lambda hit: hit.finding.severity),
    Column[_Hit](title="remedy", cell=lambda hit: hit.finding.remedy),
    Column[_Hit](title="reason", cell=lambda hit: hit.finding.reason, wide=True),
    Column[_Hit](
        title="message", cell=lambda hit: hit.finding.message.replace("\n", " "), minor=True
    ),
)


@click.group(cls=FullHelpGroup)
def scan() -> None:
    """Evaluate captured logs and tool output, without access to the machine."""


for _command in FILE_COMMANDS:
    scan.add_command(_command)


@scan.command("kernel-log")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    default=Profile.HYPERPOD.value,
    show_default=True,
    help="Vendor whose rating of a fault to use where vendors disagree.",
)
@click.option(
    "--verdict", is_flag=True, help="Print one verdict per file instead of findings per line."
)
@output_option(*LISTS)
@click.pass_context
def kernel_log(
    ctx: click.Context, files: tuple[str, ...], profile: str, output: str, *, verdict: bool
) -> None:
    """Evaluate captured kernel logs line by line.

    FILE is the output of dmesg or journalctl, /var/log/messages, records of /dev/kmsg, or - for
    standard input. Each file is evaluated on its own, in constant memory.

    \b
    The remedy of a finding is the one that the agent would request:
      none         no action
      restart-app  restart the job, keep the node
      reset-gpu    reset the GPU, or reboot the node
      reboot       reboot the node
      replace      replace the node with another machine

    \b
    Examples:
      holdfast scan kernel-log /var/log/messages
      dmesg | holdfast scan kernel-log -
      holdfast scan kernel-log -o json *.log | jq 'select(.remedy != "none")'
      holdfast scan kernel-log --verdict node-*.log

    Exits with 0 if all files were read, whatever the findings, 2 if a file was not read.
    """  # noqa: D301 - click takes the backspace for "do not wrap"
    watchers = detectors(Profile(profile))
    now = SystemClock().now().astimezone()
    if verdict:
        judge = partial(_judge, watchers, now)
        ctx.exit(show_verdicts("kernel-log", files, judge, output=output))
    show = partial(_show_documents if is_document(output) else _show_table, output)
    is_any_found = False
    unread = 0
    for file in files:
        recognizer = _Recognizer(now)
        try:
            is_found = show(_known_good(_hits(file, recognizer.of(_blocks(file)), watchers, now)))
            is_any_found |= is_found
            if not is_found and not recognizer.is_kernel_log:
                click.echo(
                    f"holdfast: {file}: {_NO_LOG}; decompress it first if it is compressed",
                    err=True,
                )
        except BackendError as error:
            click.echo(f"holdfast: {error}", err=True)
            unread += 1
    if not is_any_found and unread < len(files):
        click.echo(f"No findings in {_counted(len(files) - unread)}.", err=True)
    ctx.exit(ExitCode.BAD_INPUT if unread else ExitCode.OK)


def _judge(watchers: tuple[Detector, ...], now: datetime, file: str) -> Judgement:
    """Return the judgement of a node whose agent has read the file."""
    recognizer = _Recognizer(now)
    health = Health()
    for hit in _hits(file, recognizer.of(_blocks(file)), watchers, now):
        health = fold(health, [hit.finding])
    findings = (*map(_as_finding, health.faults), *health.notices)
    if not findings and not recognizer.is_kernel_log:
        return undecided(_NO_LOG)
    return whole(findings)


class _Recognizer:
    """Recognizes a kernel log: a file in which a line has a kernel prefix."""

    def __init__(self, now: datetime) -> None:
        self.is_kernel_log = False
        self._now = now

    def of(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for data in blocks:
            lines = () if self.is_kernel_log else data.decode(errors="replace").splitlines()
            self.is_kernel_log |= any(map(self._has_prefix, lines))
            yield data

    def _has_prefix(self, text: str) -> bool:
        line = kernel_line(text, self._now)
        return line is not None and (line.at is not None or line.since_boot is not None)


def _as_finding(fault: Fault) -> Finding:
    return Finding(
        family=fault.family,
        condition=fault.condition,
        reason=fault.reason,
        severity=fault.severity,
        remedy=fault.remedy,
        message=fault.message,
        observed_at=fault.since,
        code=fault.code,
        device=fault.device,
        urgency=fault.urgency,
    )


def _hits(
    file: str, blocks: Iterator[bytes], watchers: tuple[Detector, ...], now: datetime
) -> Iterator[_Hit]:
    """Yield the findings in a file, in their order.

    Raises:
        BackendError: the file cannot be read.

    """
    log = KernelLog(log_keywords(watchers))
    for data in blocks:
        for record in log.feed(data, now):
            yield from _judged(file, record, watchers, now)
    for record in log.close(now):
        yield from _judged(file, record, watchers, now)


def _known_good(hits: Iterator[_Hit]) -> Iterator[_Hit]:
    """Yield the hits, without a remedy while the fault has not occurred often enough."""
    health = Health()
    for hit in hits:
        finding = hit.finding
        if finding.min_count > 1:
            health = fold(health, [finding])
            finding = next((one for one in health.notices if one.key == finding.key), finding)
        yield replace(hit, finding=finding)


def _blocks(file: str) -> Iterator[bytes]:
    try:
        with cast(BufferedReader, click.open_file(file, "rb")) as stream:
            while data := stream.read1(BLOCK):  # available bytes of a pipe, to follow a live log
                yield data
    except OSError as error:
        raise BackendError(f"cannot read {file}: {error.strerror or error}") from error


def _judged(
    file: str, record: KernelLine, watchers: tuple[Detector, ...], now: datetime
) -> Iterator[_Hit]:
    line = LogLine(message=record.message, observed_at=_moment(record, now))
    readings = Readings(kernel_log=(line,))
    for watcher in watchers:
        for finding in watcher.detect(readings):
            yield _Hit(
                file=file,
                line_number=record.line_number,
                at=record.at,
                meaning=watcher.codes.get(finding.code, "") if finding.code is not None else "",
                finding=finding,
            )


def _moment(record: KernelLine, now: datetime) -> datetime:
    """Return the time of a line; without a date, a time relative to other lines."""
    if record.at is not None:
        return record.at
    return now if record.since_boot is None else _SOME_BOOT + record.since_boot


def _show_documents(output: str, hits: Iterator[_Hit]) -> bool:
    """Print one object per hit as soon as it is found. Returns whether there were any."""
    is_found = False
    for hit in hits:
        is_found = True
        finding = hit.finding
        print_next(
            {
                "file": hit.file,
                "line_number": hit.line_number,
                "family": finding.family,
                "code": finding.code,
                "device": finding.device,
                "reason": finding.reason,
                "severity": finding.severity,
                "remedy": finding.remedy,
            },
            output,
        )
    return is_found


def _show_table(output: str, hits: Iterator[_Hit]) -> bool:
    """Print tables of up to ``PAGE`` hits. Returns whether there were any."""
    is_found = False
    while page := list(islice(hits, PAGE)):
        is_found = True
        print_rows(page, _COLUMNS, output=output, empty="")
    return is_found


def _counted(files: int) -> str:
    return "the one file that was read" if files == 1 else f"the {files} files that were read"
