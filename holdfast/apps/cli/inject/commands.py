"""``holdfast inject``: injects a fault into a node of an active run."""

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
from holdfast.apps.cli.inject.injection import Injection
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.output import RESULTS, is_document, output_option, print_document
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.settings import LocalNodePolicy, RunConfig
from holdfast.apps.views.nodes import JobRank, find_node
from holdfast.apps.views.not_found import NotFound
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
class _Options:
    """Options that all commands have."""

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
        """Effect of the loss of the node on the job, as part of a message."""
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
def inject_xid(*, code: int, device: str, message: str | None, **options: Any) -> None:
    """Inject a GPU error (XID) into the kernel log.

    Writes the message that NVIDIA's driver logs for CODE. With HyperPod's rules, 74 leads to a
    replacement and 73 to a reboot.
    """
    detector = gpu_xid.build(Profile.HYPERPOD)
    text = message or faults.XID_TEXTS.get(code) or detector.codes.get(code, "Unknown Error")
    line = faults.xid_line(code, _checked_device(device), _checked_message(text))
    _report(f"xid {code}", (line,), _Options(**options))


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
def inject_sxid(*, code: int, severity: str, **options: Any) -> None:
    """Inject an NVSwitch error (SXid) into the kernel log.

    Writes the message that NVIDIA's driver logs for CODE. With HyperPod's rules, a fatal error
    leads to a replacement.
    """
    text = gpu_sxid.build(Profile.HYPERPOD).codes.get(code, "unknown error")
    lines = faults.sxid_lines(code, _SWITCH, faults.SXID_SEVERITIES[severity], text)
    _report(f"sxid {code}", lines, _Options(**options))


def _kernel_command(family: str, kinds: Mapping[str, tuple[str, ...]]) -> click.Command:
    """Return the command for faults that consist of kernel messages only."""
    usual = next(iter(kinds))

    @examples(f"holdfast inject {family} {usual} --node 0")
    @click.command(family)
    @click.argument("kind", type=click.Choice(list(kinds), case_sensitive=False), default=usual)
    @_target_options
    def command(*, kind: str, **options: Any) -> None:
        _report(f"{family} {kind}", kinds[kind], _Options(**options))

    command.help = f"{_KERNEL_FAULTS[family]}\n\nThe default fault is {usual}."
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


def _report(fault: str, lines: tuple[str, ...], options: _Options) -> None:
    """Write ``lines`` to the kernel log of a node, and print the result."""
    now, since_boot = SystemClock().now(), timedelta(seconds=time.monotonic())
    config = options.run_config()
    with _target(options) as target:
        faults.machine_processes(target.directory)
        print_it = faults.kernel_line if options.dry_run else faults.write_kernel_line
        printed = [
            print_it(target.directory, line, now=now, since_boot=since_boot) for line in lines
        ]
        injected = Injection(
            fault=fault,
            run=target.run.name,
            node=target.node,
            rank=target.rank.rank if target.rank is not None else None,
            dry_run=options.dry_run,
            profile=config.machines.xid_profile,
            expected=_after_lines(target, lines, now, config),
            kernel=tuple(form for one in printed for form in (one.record, one.syslog)),
        )
    _print(injected, options)


@examples("holdfast inject kill-rank --node 1")
@inject.command("kill-rank")
@_target_options
def inject_kill_rank(**options: Any) -> None:
    """Kill the main process of a rank with SIGKILL."""
    _send_signal(_KILL_RANK, _Options(**options))


@examples("holdfast inject power-off --node 1", "holdfast inject power-off --node 1 --dry-run")
@inject.command("power-off")
@_target_options
def inject_power_off(**options: Any) -> None:
    """Kill all processes of a node at once, as a power loss does."""
    _send_signal(_POWER_OFF, _Options(**options))


@examples("holdfast inject hang --node 1", "holdfast inject hang --node 1 --rank-only")
@inject.command("hang")
@_target_options
@click.option("--rank-only", is_flag=True, help="Stop only the rank, not the node's agent.")
def inject_hang(*, rank_only: bool, **options: Any) -> None:
    """Stop all processes of a node with SIGSTOP.

    From outside, the node looks like a machine whose kernel hangs.
    """
    _send_signal(_HANG_RANK if rank_only else _HANG, _Options(**options))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SignalFault:
    """Fault that is injected as a signal to processes of a machine."""

    name: str
    signal: str
    find: Callable[[NodeDir], list[int]]
    send: Callable[[NodeDir], list[int]]
    """Like ``find``, returns the PIDs of the processes."""

    expected: Callable[[LocalNodePolicy], str]
    is_of_rank: bool = False
    is_detected: bool = True
    """Whether the run detects the fault with its default settings."""


_KILL_RANK: Final = _SignalFault(
    name="kill-rank",
    signal="SIGKILL",
    find=lambda node: faults.rank_processes(node)[:1],
    send=faults.kill_rank,
    expected=lambda _: "the rank fails, which uses one application retry; the node stays.",
    is_of_rank=True,
)
_POWER_OFF: Final = _SignalFault(
    name="power-off",
    signal="SIGKILL",
    find=faults.machine_processes,
    send=faults.power_off,
    expected=lambda policy: (
        f"the node is detected as powered off at once, and {_done(policy, policy.silent_remedy)}."
    ),
)
_HANG: Final = _SignalFault(
    name="hang",
    signal="SIGSTOP",
    find=faults.machine_processes,
    send=faults.hang,
    expected=lambda policy: (
        f"after {format_duration(policy.heartbeat_timeout)} without a heartbeat the node counts "
        f"as lost and is {_done(policy, policy.silent_remedy)}."
    ),
)
_HANG_RANK: Final = _SignalFault(
    name="hang-rank",
    signal="SIGSTOP",
    find=faults.rank_processes,
    send=faults.hang_rank,
    expected=lambda _: (
        "the job hangs until a timeout of its own or the --hang-timeout of holdfast run."
    ),
    is_of_rank=True,
    is_detected=False,
)


def _send_signal(fault: _SignalFault, options: _Options) -> None:
    config = options.run_config()
    with _target(options) as target:
        if fault.is_of_rank and target.rank is None:
            raise NotFound(f"no rank is running on {target.node}")
        hit = (fault.find if options.dry_run else fault.send)(target.directory)
        resumes = target.job_resumes if fault.is_detected else ""
        injected = Injection(
            fault=fault.name,
            run=target.run.name,
            node=target.node,
            rank=target.rank.rank if target.rank is not None else None,
            dry_run=options.dry_run,
            profile=config.machines.xid_profile,
            expected=fault.expected(config.nodes) + resumes,
            signal=fault.signal,
            processes=tuple(hit),
        )
    _print(injected, options)


@contextlib.contextmanager
def _target(options: _Options) -> Iterator[_Target]:
    with open_runs(default_home(), options.run) as known:
        run, node = find_node(options.node, known)
        if not run.is_active:
            raise NotFound(f"run {run.name} is not active: no fault can be injected")
        yield _Target(run, node, run.ranks().get(node))


def _after_lines(target: _Target, lines: tuple[str, ...], now: datetime, config: RunConfig) -> str:
    """Return the expected effect of kernel messages, by the detectors and the remedy ladder."""
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


def _print(injected: Injection, options: _Options) -> None:
    if is_document(options.output):
        print_document(injected, options.output)
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
    by = "" if options.config else f" with the default profile, {injected.profile}"
    click.echo(f"Expected{by}: {injected.expected}")
    if not injected.dry_run:
        click.echo("Watch the effect with: holdfast nodes list --watch")
