"""``holdfast scan KIND``: evaluates captured tool output, with one verdict per file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    is_document,
    output_option,
    print_next,
    print_rows,
)
from holdfast.apps.cli.parameters import Number
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.detectors.gpu_dcgm import judge_diag, judge_health
from holdfast.detectors.gpu_state import judge_text, judge_xml
from holdfast.detectors.judgement import HealthState, Judgement, undecided
from holdfast.detectors.load_tests import judge_nccl, judge_stress
from holdfast.detectors.network_tools import judge_fi_info, judge_ibstat
from holdfast.detectors.neuron_state import judge_ls, judge_monitor
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding

LARGEST_FILE: Final = 16 * 1024 * 1024
"""Maximum bytes of a file; a larger file is not output of such a tool."""

_EXPECTED: Final = click.Option(
    ["--expected"],
    type=click.IntRange(min=1),
    help="Expected number of devices.  [default: no check of the number]",
)
_LEAST: Final = click.Option(
    ["--least-gbps"],
    type=Number(min=0),
    help="Minimum bus bandwidth in GB/s at the largest size. HyperPod requires 80 on p5.",
)
_SECONDS: Final = click.Option(
    ["--seconds"],
    type=Number(min=0),
    help="Expected duration of the test in seconds.  [default: as the file states]",
)


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    what: str
    """Tool that writes files of this kind."""

    judge: Callable[..., Judgement]
    """Takes the text, the time and the options."""

    options: tuple[click.Option, ...] = ()


_KINDS: Final = (
    _Kind("nvidia-smi-xml", "nvidia-smi -q -x", judge_xml, (_EXPECTED,)),
    _Kind("nvidia-smi-text", "nvidia-smi -q, or nvidia-smi alone", judge_text, (_EXPECTED,)),
    _Kind("dcgm-diag", "dcgmi diag -r N -j", judge_diag),
    _Kind("dcgm-health", "dcgmi health -c -j", judge_health),
    _Kind("neuron-ls", "neuron-ls -j", judge_ls, (_EXPECTED,)),
    _Kind("neuron-monitor", "neuron-monitor", judge_monitor),
    _Kind("fi-info", "fi_info -p efa -t FI_EP_RDM", judge_fi_info, (_EXPECTED,)),
    _Kind("ibstat", "ibstat", judge_ibstat),
    _Kind("nccl-tests", "all_reduce_perf and other nccl-tests", judge_nccl, (_LEAST,)),
    _Kind("stress-ng", "stress-ng or stress, including standard error", judge_stress, (_SECONDS,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Row of the table: a finding, or a file without findings."""

    file: str
    verdict: HealthState
    finding: Finding | None
    why: str


_COLUMNS: Final = (
    Column[_Row](title="file", cell=lambda row: row.file),
    Column[_Row](title="verdict", cell=lambda row: row.verdict),
    Column[_Row](title="device", cell=lambda row: row.finding and row.finding.device),
    Column[_Row](title="severity", cell=lambda row: row.finding and row.finding.severity),
    Column[_Row](title="remedy", cell=lambda row: row.finding and row.finding.remedy),
    Column[_Row](title="reason", cell=lambda row: row.finding and row.finding.reason, wide=True),
    Column[_Row](
        title="message",
        cell=lambda row: row.finding.message if row.finding else row.why,
        minor=True,
    ),
)


def _command(kind: _Kind) -> click.Command:
    files = click.Argument(["files"], metavar="FILE...", nargs=-1, required=True)
    command = click.Command(
        kind.name,
        params=[files, *kind.options],
        callback=click.pass_context(partial(_scan, kind)),
        short_help=f"Evaluate the output of {kind.what}.",
        help=f"""Evaluate the output of {kind.what}.

        FILE is captured output, or - for standard input. Each file gets a verdict:

        \b
          healthy    no fault in what was measured; warnings are possible
          unhealthy  a fault, with the remedy that the agent would request
          unknown    no verdict: the file is empty or truncated, has N/A values, or
                     the tool failed; never a reason to repair the node

        Exits with 0 if all files were read, whatever the verdicts, 2 if a file was not read.
        """,
    )
    judged = examples(f"holdfast scan {kind.name} captured.txt --output json")
    return judged(output_option(*LISTS)(command))


def _scan(
    kind: _Kind, ctx: click.Context, /, files: Sequence[str], output: str, **options: Any
) -> None:
    judge = partial(_judge, kind, SystemClock().now(), options)
    ctx.exit(show_verdicts(kind.name, files, judge, output=output))


def show_verdicts(
    kind: str, files: Sequence[str], judge: Callable[[str], Judgement], *, output: str
) -> ExitCode:
    """Print the judgement of each file. Returns ``BAD_INPUT`` if a file could not be read."""
    rows: list[_Row] = []
    unread = 0
    for file in files:
        try:
            judgement = judge(file)
        except BackendError as error:
            click.echo(f"holdfast: {error}", err=True)
            unread += 1
            continue
        if is_document(output):
            _print(kind, file, judgement, output)
        else:
            rows += _rows(file, judgement)
    if not is_document(output) and rows:
        print_rows(rows, _COLUMNS, output=output, empty="")
    return ExitCode.BAD_INPUT if unread else ExitCode.OK


def _judge(kind: _Kind, now: datetime, options: dict[str, Any], file: str) -> Judgement:
    try:
        with click.open_file(file, "rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BackendError(f"cannot read {file}: {error.strerror or error}") from error
    if len(data) > LARGEST_FILE:
        return undecided(f"it is longer than {LARGEST_FILE} bytes")
    return kind.judge(data.decode("utf-8-sig", errors="replace"), now, **options)


def _print(kind: str, file: str, judgement: Judgement, output: str) -> None:
    print_next(
        {
            "kind": kind,
            "file": file,
            "verdict": judgement.verdict,
            "undecided": judgement.undecided,
            "findings": [
                {key: value for key, value in to_plain(finding).items() if key != "observed_at"}
                for finding in judgement.findings
            ],
        },
        output,
    )


def _rows(file: str, judgement: Judgement) -> list[_Row]:
    row = partial(_Row, file=file, verdict=judgement.verdict)
    found = [row(finding=finding, why="") for finding in judgement.findings]
    if judgement.undecided or not found:
        found.append(row(finding=None, why=judgement.undecided))
    return found


FILE_COMMANDS: Final = tuple(_command(kind) for kind in _KINDS)
