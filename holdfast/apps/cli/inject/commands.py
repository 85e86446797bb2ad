"""``holdfast inject``: break something on purpose, on a node of a run that goes on."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from holdfast.adapters.local import faults
from holdfast.adapters.local.layout import NodeDir, default_home
from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.inject.dcgm import inject_dcgm
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.output import RESULTS, is_document, output_option, print_document
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.settings import LocalNodePolicy, RunConfig
from holdfast.apps.views.nodes import JobRank, NotFound, find_node
from holdfast.apps.views.runs import KnownRun, open_runs
from holdfast.decisions.ladder import remedy_for
from holdfast.decisions.policy import RecoveryMode
from holdfast.detectors import gpu_sxid, gpu_xid
from holdfast.detectors.contract import KERNEL_LOG, LogLine, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.table import detectors
from holdfast.kit.config import load_config
from holdfast.kit.units import format_duration
from holdfast.model.errors import ConfigError
from holdfast.model.health import Remedy, Urgency
from holdfast.model.nodes import NodeView

F = TypeVar("F", bound=Callable[..., Any])

_DEVICE: Final = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}( GPU-I:[0-9]{2})?")
_DONE: Final = {Remedy.REBOOT: "rebooted", Remedy.REPLACE: "replaced"}
_SWITCH: Final = "0000:c3:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What was done to a node, and what should come of it."""

    fault: str
    run: str
    node: str
    rank: int | None
    """Of the rank that ran on it; None if none did."""

    dry_run: bool
    profile: str
    """Whose opinion of an XID was asked."""

    expected: str
    """By the configuration that was given, or else by the default one."""

    kernel: tuple[str, ...] = ()
    """What its kernel printed: each time the record of /dev/kmsg and the line of
    /var/log/messages."""

    signal: str = ""
    processes: tuple[int, ...] = ()
    """To which the signal was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The options that all commands have."""

    node: str
    run: str | None
    config: Path | None
    dry_run: bool
    output: str

    def run_config(self) -> RunConfig:
        return load_config(self.config, RunConfig) if self.config else RunConfig()


@dataclass(frozen=True, slots=True)
class _Target:
    run: KnownRun
    node: str
    rank: JobRank | None

    @property
    def directory(self) -> NodeDir:
        return self.run.directory.node(self.node)

    @property
    def job_resumes(self) -> str:
        """What it means for the job that the node is lost."""
        if self.rank is None:
            return ""
        return f" Job {self.rank.job} is stopped and resumes from its last checkpoint."


@click.group(cls=FullHelpGroup)
def inject() -> None:
    """Inject a fault into a node of an active run.

    NODE is the name or instance ID of a node, a unique prefix of either, or the rank of the job on
    it: 0 is the node of rank 0. The command dcgm injects a fault into this machine.
    """


def _target_options(command: F) -> F:
    for option in (
        output_option(*RESULTS),
        click.option("--dry-run", is_flag=True, help="Print the planned fault and exit."),
        click.option("--run", metavar="RUN", help="Name of the run, if several are active."),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="Configuration file of the run, to predict the effect.",
        ),
        click.option(
            "--node",
            metavar="NODE",
            required=True,
            help="Name, instance ID or rank of the node.",
            shell_complete=node_names,
        ),
    ):
        command = option(command)
    return command


@examples(
    "holdfast inject xid 74 --node 0",
    "holdfast inject xid 79 --node i-0123 --device 0000:c3:00",
)
@inject.command("xid")
@click.argument("code", type=click.IntRange(min=1))
@_target_options
@click.option("--device", default="0000:b9:00", show_default=True, help="PCI address of the GPU.")
@click.option("--message", help="Text of the message.  [default: the driver's text for CODE]")
def inject_xid(*, code: int, device: str, message: str | None, **order: Any) -> None:
    """Inject a GPU error (XID) into the kernel log.

    Writes the message that NVIDIA's driver logs for CODE. With HyperPod's rules, 74 leads to a
    replacement and 73 to a reboot.
    """
    detector = gpu_xid.build(Profile.HYPERPOD)
    text = message or faults.XID_TEXTS.get(code) or detector.codes.get(code, "Unknown Error")
    line = faults.xid_line(code, _checked_device(device), _checked_message(text))
    _report(f"xid {code}", (line,), _Order(**order))


@examples(
    "holdfast inject sxid 20034 --node 0",
    "holdfast inject sxid 12028 --node 0 --severity non-fatal",
)
@inject.command("sxid")
@click.argument("code", type=click.IntRange(min=10000, max=99999))
@click.option(
    "--severity",
    type=click.Choice(list(faults.SXID_SEVERITIES)),
    default="fatal",
    show_default=True,
    help="Severity in the message.",
)
@_target_options
def inject_sxid(*, code: int, severity: str, **order: Any) -> None:
    """Inject an NVSwitch error (SXid) into the kernel log.

    Writes the message that NVIDIA's driver logs for CODE. With HyperPod's rules, a fatal error
    leads to a replacement.
    """
    text = gpu_sxid.build(Profile.HYPERPOD).codes.get(code, "unknown error")
    lines = faults.sxid_lines(code, _SWITCH, faults.SXID_SEVERITIES[severity], text)
    _report(f"sxid {code}", lines, _Order(**order))


def _kernel_command(family: str, kinds: Mapping[str, tuple[str, ...]]) -> click.Command:
    """The command for faults that are nothing but what the kernel says of them."""
    usual = next(iter(kinds))

    @examples(f"holdfast inject {family} {usual} --node 0")
    @click.command(family)
    @click.argument("kind", type=click.Choice(list(kinds), case_sensitive=False), default=usual)
    @_target_options
    def command(*, kind: str, **order: Any) -> None:
        _report(f"{family} {kind}", kinds[kind], _Order(**order))

    command.help = f"{_KERNEL_FAULTS[family]}\n\nThe default KIND is {usual}."
    return command


_KERNEL_FAULTS: Final = {
    "neuron": "Inject a Neuron device error into the kernel log.",
    "efa": "Inject an EFA device failure into the kernel log.",
    "oom": "Inject an out-of-memory kill into the kernel log.",
    "disk": "Inject a disk failure into the kernel log.",
    "lockup": "Inject a kernel lockup into the kernel log.",
}
inject.add_command(inject_dcgm)
for _family, _kinds in faults.KERNEL_TEXTS.items():
    inject.add_command(_kernel_command(_family, _kinds))


def _report(fault: str, lines: tuple[str, ...], order: _Order) -> None:
    """Have the kernel of a node print ``lines``."""
    now, since_boot = SystemClock().now(), timedelta(seconds=time.monotonic())
    config = order.run_config()
    with _target(order) as target:
        faults.machine_processes(target.directory)
        print_it = faults.kernel_line if order.dry_run else faults.write_kernel_line
        printed = [
            print_it(target.directory, line, now=now, since_boot=since_boot) for line in lines
        ]
        injected = Injection(
            fault=fault,
            run=target.run.name,
            node=target.node,
            rank=target.rank.rank if target.rank is not None else None,
            dry_run=order.dry_run,
            profile=config.machines.xid_profile,
            expected=_after_lines(target, lines, now, config),
            kernel=tuple(form for one in printed for form in (one.record, one.syslog)),
        )
    _print(injected, order)


@examples("holdfast inject kill-rank --node 1")
@inject.command("kill-rank")
@_target_options
def inject_kill_rank(**order: Any) -> None:
    """Kill the main process of a rank with SIGKILL."""
    _strike(_KILL_RANK, _Order(**order))


@examples("holdfast inject power-off --node 1", "holdfast inject power-off --node 1 --dry-run")
@inject.command("power-off")
@_target_options
def inject_power_off(**order: Any) -> None:
    """Kill all processes of a node at once, as a power loss does."""
    _strike(_POWER_OFF, _Order(**order))


@examples("holdfast inject hang --node 1", "holdfast inject hang --node 1 --rank-only")
@inject.command("hang")
@_target_options
@click.option("--rank-only", is_flag=True, help="Stop only the rank, not the node's agent.")
def inject_hang(*, rank_only: bool, **order: Any) -> None:
    """Stop all processes of a node with SIGSTOP.

    From outside, the node looks like a machine whose kernel hangs.
    """
    _strike(_HANG_RANK if rank_only else _HANG, _Order(**order))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blow:
    """A fault that is a signal to processes of a machine."""

    fault: str
    signal: str
    aim: Callable[[NodeDir], list[int]]
    """Finds the processes that it will hit."""

    strike: Callable[[NodeDir], list[int]]
    expected: Callable[[LocalNodePolicy], str]
    is_of_rank: bool = False
    is_noticed: bool = True
    """Whether the run finds out without being asked to look for it."""


_KILL_RANK: Final = _Blow(
    fault="kill-rank",
    signal="SIGKILL",
    aim=lambda node: faults.rank_processes(node)[:1],
    strike=faults.kill_rank,
    expected=lambda _: "the rank fails, which uses one application retry; the node stays.",
    is_of_rank=True,
)
_POWER_OFF: Final = _Blow(
    fault="power-off",
    signal="SIGKILL",
    aim=faults.machine_processes,
    strike=faults.power_off,
    expected=lambda policy: (
        f"the node is detected as powered off at once, and {_done(policy, policy.silent_remedy)}."
    ),
)
_HANG: Final = _Blow(
    fault="hang",
    signal="SIGSTOP",
    aim=faults.machine_processes,
    strike=faults.hang,
    expected=lambda policy: (
        f"after {format_duration(policy.heartbeat_timeout)} without a heartbeat the node counts "
        f"as lost and is {_done(policy, policy.silent_remedy)}."
    ),
)
_HANG_RANK: Final = _Blow(
    fault="hang-rank",
    signal="SIGSTOP",
    aim=faults.rank_processes,
    strike=faults.hang_rank,
    expected=lambda _: (
        "the job hangs until a timeout of its own or the --hang-timeout of holdfast run."
    ),
    is_of_rank=True,
    is_noticed=False,
)


def _strike(blow: _Blow, order: _Order) -> None:
    config = order.run_config()
    with _target(order) as target:
        if blow.is_of_rank and target.rank is None:
            raise NotFound(f"no rank is running on {target.node}")
        hit = (blow.aim if order.dry_run else blow.strike)(target.directory)
        injected = Injection(
            fault=blow.fault,
            run=target.run.name,
            node=target.node,
            rank=target.rank.rank if target.rank is not None else None,
            dry_run=order.dry_run,
            profile=config.machines.xid_profile,
            expected=blow.expected(config.nodes) + (target.job_resumes if blow.is_noticed else ""),
            signal=blow.signal,
            processes=tuple(hit),
        )
    _print(injected, order)


@contextlib.contextmanager
def _target(order: _Order) -> Iterator[_Target]:
    with open_runs(default_home(), order.run) as known:
        run, node = find_node(order.node, known)
        if not run.is_active:
            raise NotFound(f"run {run.name} is not active: no fault can be injected")
        yield _Target(run, node, run.ranks().get(node))


def _after_lines(target: _Target, lines: tuple[str, ...], now: datetime, config: RunConfig) -> str:
    """What the detectors and the ladder of remedies will make of what the kernel says."""
    readings = Readings(kernel_log=tuple(LogLine(message=line, observed_at=now) for line in lines))
    watchers = [one for one in detectors(config.machines.xid_profile) if KERNEL_LOG in one.reads]
    health = fold(Health(), [one for watcher in watchers for one in watcher.detect(readings)])
    if not health.faults:
        reasons = [notice.reason for notice in health.notices]
        if not reasons:
            return "the driver's message is not recognized."
        return f"{reasons[0]} is recorded, and no repair follows."
    fault = health.faults[0]
    if not fault.remedy.touches_node:
        return f"the node stays ({fault.reason}).{target.job_resumes}"
    provider_id, _, record = target.run.store.nodes()[target.node]
    view = NodeView(name=target.node, provider_id=provider_id, record=record)
    done = _done(config.nodes, remedy_for(view, fault, config.nodes, now))
    if fault.urgency is Urgency.DEFERRED:
        return f"the node is {done} once no job runs on it ({fault.reason})."
    return f"the node is {done} ({fault.reason}).{target.job_resumes}"


def _done(policy: LocalNodePolicy, remedy: Remedy) -> str:
    if policy.node_recovery is RecoveryMode.NONE:
        return "quarantined only, because node_recovery = None"
    return _DONE[remedy]


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


def _print(injected: Injection, order: _Order) -> None:
    if is_document(order.output):
        print_document(injected, order.output)
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
    by = "" if order.config else f" with the default profile, {injected.profile}"
    click.echo(f"Expected{by}: {injected.expected}")
    if not injected.dry_run:
        click.echo("Watch the effect with: holdfast nodes list --watch")
