"""``holdfast inject``: break something on purpose, on a node of a run that goes on."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click

from holdfast.adapters.local import faults
from holdfast.adapters.local.layout import NodeDir, default_home
from holdfast.apps.cli.output import Output, output_option, print_json
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.settings import LocalNodePolicy
from holdfast.apps.runs import KnownRun, NotFound, find_node, open_runs
from holdfast.decisions.ladder import remedy_for
from holdfast.detectors import gpu_sxid, gpu_xid
from holdfast.detectors.contract import KERNEL_LOG, LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.table import detectors
from holdfast.kit.units import format_duration
from holdfast.model.errors import ConfigError
from holdfast.model.health import Remedy, Urgency
from holdfast.model.nodes import NodeView

F = TypeVar("F", bound=Callable[..., Any])

_DEVICE: Final = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}( GPU-I:[0-9]{2})?")
_DONE: Final = {Remedy.REBOOT: "rebooted", Remedy.REPLACE: "replaced"}
_POLICY: Final = LocalNodePolicy()
_SWITCH: Final = "0000:c3:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What was done to a node, and what should come of it."""

    fault: str
    run: str
    node: str
    rank: int | None
    """Of the rank that ran on it; None if none did."""

    dry_run: bool
    expected: str
    """By the default policy; the run may have another."""

    kernel: tuple[str, ...] = ()
    """What its kernel printed: each time the record of /dev/kmsg and the line of
    /var/log/messages."""

    signal: str = ""
    processes: tuple[int, ...] = ()
    """To which the signal was sent."""


@dataclass(frozen=True, slots=True)
class _Target:
    run: KnownRun
    node: str
    rank: int | None

    @property
    def directory(self) -> NodeDir:
        return self.run.directory.node(self.node)

    @property
    def job_resumes(self) -> str:
        """What it means for the job that the node is lost."""
        if self.rank is None:
            return ""
        return f" Job {self.run.name} is stopped and resumes from its last checkpoint."


@click.group()
def inject() -> None:
    """Break something on purpose, on a node of a run that goes on.

    NODE is the name of a node, its instance id, the beginning of either, or the rank that it has in
    the job: 0 is the node of rank 0.
    """


def _target_options(command: F) -> F:
    for option in (
        output_option(Output.TABLE, Output.JSON),
        click.option("--dry-run", is_flag=True, help="Say what would be done, do nothing."),
        click.option("--run", metavar="RUN", help="The run it belongs to, if several go on."),
        click.option(
            "--node", metavar="NODE", required=True, help="Its name, instance id or rank."
        ),
    ):
        command = option(command)
    return command


@inject.command("xid")
@click.argument("code", type=click.IntRange(min=1))
@_target_options
@click.option("--device", default="0000:b9:00", show_default=True, help="PCI address of the GPU.")
@click.option("--message", help="What the driver says.  [default: its usual words for CODE]")
def inject_xid(
    *,
    code: int,
    node: str,
    run: str | None,
    device: str,
    message: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Have the kernel report a GPU error.

    It prints the XID CODE in the words of NVIDIA's driver. By HyperPod's rules 74 leads to a
    replacement and 73 to a reboot.
    """
    detector = gpu_xid.build(Profile.HYPERPOD)
    text = message or faults.XID_TEXTS.get(code) or detector.codes.get(code, "Unknown Error")
    line = faults.xid_line(code, _checked_device(device), _checked_message(text))
    _report(f"xid {code}", (line,), node, run, dry_run=dry_run, output=output)


@inject.command("sxid")
@click.argument("code", type=click.IntRange(min=10000, max=99999))
@click.option(
    "--severity",
    type=click.Choice(list(faults.SXID_SEVERITIES)),
    default="fatal",
    show_default=True,
    help="How bad the driver says it is.",
)
@_target_options
def inject_sxid(
    *, code: int, severity: str, node: str, run: str | None, dry_run: bool, output: str
) -> None:
    """Have the kernel report an NVSwitch error.

    It prints the SXID CODE in the words of NVIDIA's driver. By HyperPod's rules a fatal one leads
    to a replacement.
    """
    text = gpu_sxid.build(Profile.HYPERPOD).codes.get(code, "unknown error")
    lines = faults.sxid_lines(code, _SWITCH, faults.SXID_SEVERITIES[severity], text)
    _report(f"sxid {code}", lines, node, run, dry_run=dry_run, output=output)


def _kernel_command(family: str, kinds: Mapping[str, tuple[str, ...]]) -> click.Command:
    """The command for faults that are nothing but what the kernel says of them."""
    usual = next(iter(kinds))

    @click.command(family)
    @click.argument("kind", type=click.Choice(list(kinds), case_sensitive=False), default=usual)
    @_target_options
    def command(*, kind: str, node: str, run: str | None, dry_run: bool, output: str) -> None:
        _report(f"{family} {kind}", kinds[kind], node, run, dry_run=dry_run, output=output)

    command.help = f"{_KERNEL_FAULTS[family]}\n\nWithout KIND it is {usual}."
    return command


_KERNEL_FAULTS: Final = {
    "neuron": "Have the kernel report an error of a Neuron device.",
    "efa": "Have the kernel report a dead EFA device.",
    "oom": "Have the kernel report that memory ran out.",
    "disk": "Have the kernel report a failing disk.",
    "lockup": "Have the kernel report that it is stuck.",
}
for _family, _kinds in faults.KERNEL_TEXTS.items():
    inject.add_command(_kernel_command(_family, _kinds))


def _report(
    fault: str, lines: tuple[str, ...], node: str, run: str | None, *, dry_run: bool, output: str
) -> None:
    """Have the kernel of a node print ``lines``."""
    now, since_boot = SystemClock().now(), timedelta(seconds=time.monotonic())
    with _target(node, run) as target:
        faults.machine_processes(target.directory)
        print_it = faults.kernel_line if dry_run else faults.write_kernel_line
        printed = [
            print_it(target.directory, line, now=now, since_boot=since_boot) for line in lines
        ]
        injected = Injected(
            fault=fault,
            run=target.run.name,
            node=target.node,
            rank=target.rank,
            dry_run=dry_run,
            expected=_after_lines(target, lines, now),
            kernel=tuple(form for one in printed for form in (one.record, one.syslog)),
        )
    _print(injected, output)


@inject.command("kill-rank")
@_target_options
def inject_kill_rank(*, node: str, run: str | None, dry_run: bool, output: str) -> None:
    """Kill the main process of a rank."""
    _strike(_KILL_RANK, node, run, dry_run=dry_run, output=output)


@inject.command("power-off")
@_target_options
def inject_power_off(*, node: str, run: str | None, dry_run: bool, output: str) -> None:
    """Have everything on a node die at once."""
    _strike(_POWER_OFF, node, run, dry_run=dry_run, output=output)


@inject.command("hang")
@_target_options
@click.option("--rank-only", is_flag=True, help="Stop the rank alone; the node's agent goes on.")
def inject_hang(*, node: str, run: str | None, rank_only: bool, dry_run: bool, output: str) -> None:
    """Stop everything on a node, with SIGSTOP.

    This is how a machine looks from outside whose kernel is wedged.
    """
    _strike(_HANG_RANK if rank_only else _HANG, node, run, dry_run=dry_run, output=output)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blow:
    """A fault that is a signal to processes of a machine."""

    fault: str
    signal: str
    aim: Callable[[NodeDir], list[int]]
    """Finds the processes that it will hit."""

    strike: Callable[[NodeDir], list[int]]
    expected: str
    is_of_rank: bool = False


_KILL_RANK: Final = _Blow(
    fault="kill-rank",
    signal="SIGKILL",
    aim=lambda node: faults.rank_processes(node)[:1],
    strike=faults.kill_rank,
    expected="the rank has failed, which costs one retry of the application; the node stays.",
    is_of_rank=True,
)
_POWER_OFF: Final = _Blow(
    fault="power-off",
    signal="SIGKILL",
    aim=faults.machine_processes,
    strike=faults.power_off,
    expected=f"the node is found dark at once and is {_DONE[_POLICY.silent_remedy]}.",
)
_HANG: Final = _Blow(
    fault="hang",
    signal="SIGSTOP",
    aim=faults.machine_processes,
    strike=faults.hang,
    expected=(
        f"after {format_duration(_POLICY.heartbeat_timeout)} without a heartbeat the node counts "
        f"as lost and is {_DONE[_POLICY.silent_remedy]}."
    ),
)
_HANG_RANK: Final = _Blow(
    fault="hang-rank",
    signal="SIGSTOP",
    aim=faults.rank_processes,
    strike=faults.hang_rank,
    expected="the job hangs until a timeout of its own, or that of holdfast run --hang-timeout.",
    is_of_rank=True,
)


def _strike(blow: _Blow, node: str, run: str | None, *, dry_run: bool, output: str) -> None:
    with _target(node, run) as target:
        if blow.is_of_rank and target.rank is None:
            raise NotFound(f"no rank runs on {target.node} now")
        hit = (blow.aim if dry_run else blow.strike)(target.directory)
        injected = Injected(
            fault=blow.fault,
            run=target.run.name,
            node=target.node,
            rank=target.rank,
            dry_run=dry_run,
            expected=blow.expected + target.job_resumes,
            signal=blow.signal,
            processes=tuple(hit),
        )
    _print(injected, output)


@contextlib.contextmanager
def _target(text: str, name: str | None) -> Iterator[_Target]:
    with open_runs(default_home(), name) as known:
        run, node = find_node(text, known)
        if not run.is_active:
            raise NotFound(f"run {run.name} is not going on any more: nothing is there to break")
        ranks = {name: rank for rank, name in enumerate(run.placement())}
        yield _Target(run, node, ranks.get(node))


def _after_lines(target: _Target, lines: tuple[str, ...], now: datetime) -> str:
    """What the detectors and the ladder of remedies will make of what the kernel says."""
    readings = Readings(kernel_log=tuple(LogLine(message=line, observed_at=now) for line in lines))
    watchers = [one for one in detectors(Profile.HYPERPOD) if KERNEL_LOG in one.reads]
    health = fold(Health(), [one for watcher in watchers for one in watcher.detect(readings)])
    if not health.faults:
        reasons = [notice.reason for notice in health.notices]
        return f"{reasons[0]} is noted and nothing is done." if reasons else "it is not understood."
    fault = health.faults[0]
    if not fault.remedy.touches_node:
        return f"the node stays ({fault.reason}).{target.job_resumes}"
    provider_id, _, record = target.run.store.nodes()[target.node]
    view = NodeView(name=target.node, provider_id=provider_id, record=record)
    done = _DONE[remedy_for(view, fault, _POLICY, now)]
    if fault.urgency is Urgency.DEFERRED:
        return f"the node is {done} once no job runs on it ({fault.reason})."
    return f"the node is {done} ({fault.reason}).{target.job_resumes}"


def _checked_device(device: str) -> str:
    if not _DEVICE.fullmatch(device):
        raise ConfigError(
            f"--device: {device!r} is not a PCI address; expected one such as 0000:b9:00, or "
            "'0000:b9:00 GPU-I:05' for a MIG instance"
        )
    return device


def _checked_message(message: str) -> str:
    if not message.isprintable():
        raise ConfigError(f"--message: expected one line of printable text, got {message!r}")
    return message


def _print(injected: Injected, output: str) -> None:
    if output == Output.JSON:
        print_json(injected)
        return
    would = "would have" if injected.dry_run else "has"
    if injected.kernel:
        click.echo(f"{injected.node}: its kernel log {would} these lines:")
        for line in injected.kernel:
            click.echo(f"  {line}")
    else:
        count = len(injected.processes)
        what = f"{count} processes" if count != 1 else f"process {injected.processes[0]}"
        sent = "would go" if injected.dry_run else "went"
        click.echo(f"{injected.node}: {injected.signal} {sent} to {what}")
    click.echo(f"Expected: {injected.expected}")
    if not injected.dry_run:
        click.echo("See it with: holdfast nodes list --watch")
