"""``holdfast nodes reboot``, ``replace``, ``check`` and others: record requests, never act."""

import getpass
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import click

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.nodes.names import RESET_BREAKER
from holdfast.apps.cli.nodes.wait import RepairWait, wait_until_done
from holdfast.apps.cli.output import (
    RESULTS,
    confirm_or_abort,
    dry_run_option,
    is_document,
    output_option,
    print_document,
    yes_option,
)
from holdfast.apps.cli.parameters import Duration
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.target import Where, open_fleets
from holdfast.apps.views.nodes import Fleet, JobRank, find_node, only
from holdfast.apps.views.not_found import NotFound
from holdfast.model.health import Urgency
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Request, Verb

Decorator = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """Request for one node, and whether it was accepted."""

    node: str
    """Name of the node; as typed, if there is no such node."""

    run: str = ""
    verb: Verb
    urgency: Urgency
    is_accepted: bool
    request_id: str = ""
    """Empty if nothing was recorded."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    where: Where
    node: tuple[str, ...]
    dry_run: bool
    wait: bool
    timeout: timedelta
    output: str
    yes: bool = True
    when_idle: bool = False
    kinds: tuple[str, ...] = ()

    @property
    def urgency(self) -> Urgency:
        return Urgency.DEFERRED if self.when_idle else Urgency.IMMEDIATE


@dataclass(frozen=True, slots=True)
class _Target:
    fleet: Fleet
    node: str
    rank: JobRank | None
    """Rank that runs on the node now."""


def _request_repair(verb: Verb, *, node: tuple[str, ...], nodes: str, **values: Any) -> int:
    named = (*node, *filter(None, (one.strip() for one in nodes.split(","))))
    if not named:
        raise click.UsageError("name at least one node: as NODE, or with --nodes")
    options = _Options(where=taken(values), node=named, **values)
    with open_fleets(options.where) as known:
        targets, rejected = _targets(options.node, known)
        if targets and not options.dry_run:
            confirm_or_abort(_question(verb, targets, options), yes=options.yes)
        outcomes = [_submit(verb, target, options) for target in targets]
        outcomes += [
            RequestResult(
                node=node, verb=verb, urgency=options.urgency, is_accepted=False, message=why
            )
            for node, why in rejected.items()
        ]
        _print(outcomes, options)
        accepted = [
            RepairWait(target.fleet, target.node, outcome.request_id)
            for target, outcome in zip(targets, outcomes, strict=False)
            if outcome.is_accepted and outcome.request_id
        ]
        _warn_of_breakers({one.fleet.name: one.fleet for one in accepted}.values(), options.where)
        target_options = options.where.as_options()
        is_done = not options.wait or wait_until_done(accepted, options.timeout, target_options)
    return _exit_code(outcomes, is_done=is_done)


def _targets(texts: Sequence[str], known: Sequence[Fleet]) -> tuple[list[_Target], dict[str, str]]:
    """Return the selected nodes, each once, and ``text -> error`` for texts that select none."""
    targets, rejected = {}, {}
    for text in texts:
        try:
            fleet, node = find_node(text, known)
        except NotFound as error:
            rejected[text] = str(error)
        else:
            targets[node] = _Target(fleet, node, fleet.ranks().get(node))
    return list(targets.values()), rejected


def _question(verb: Verb, targets: Sequence[_Target], options: _Options) -> str:
    names = ", ".join(target.node for target in targets)
    jobs = sorted({target.rank.job for target in targets if target.rank is not None})
    question = f"{verb.capitalize()} {names}?"
    if jobs and not options.when_idle:
        question += f" Job {', '.join(jobs)} is stopped and resumes from its last checkpoint."
    return question


def _submit(verb: Verb, target: _Target, options: _Options) -> RequestResult:
    fleet, node = target.fleet, target.node
    answer = partial(RequestResult, node=node, run=fleet.name, verb=verb, urgency=options.urgency)
    if not fleet.is_active:
        return answer(is_accepted=False, message=f"run {fleet.name} is not active")
    if options.dry_run:
        effect = _effect(verb, target, options)
        return answer(is_accepted=True, message=f"{verb} would be requested{effect}")
    request = Request(
        id=str(uuid.uuid4()),
        verb=verb,
        requested_at=SystemClock().now(),
        requested_by=_user(),
        urgency=options.urgency,
        checks=tuple(map(DeepCheck, options.kinds)),
    )
    refusal = fleet.submit(node, request)
    if refusal:
        return answer(is_accepted=False, message=refusal)
    waits = ""
    if verb is Verb.DEEP_CHECK and options.when_idle and target.rank is not None:
        waits = f"; waits for job {target.rank.job}"
    return answer(is_accepted=True, request_id=request.id, message=f"{verb} requested{waits}")


def _effect(verb: Verb, target: _Target, options: _Options) -> str:
    """Return the effect on the job on the node, for a dry run."""
    if target.rank is None or verb is Verb.RELEASE:
        return ""
    rank = f"rank {target.rank.rank} of job {target.rank.job}"
    if options.when_idle:
        return f"; starts when {rank} has left the node"
    return f"; {rank} runs there: the job is stopped and resumes from its last checkpoint"


def _print(outcomes: Sequence[RequestResult], options: _Options) -> None:
    if is_document(options.output):
        print_document(outcomes, options.output)
    for outcome in outcomes:
        if not outcome.is_accepted:
            click.echo(f"holdfast: {outcome.node}: {outcome.message}", err=True)
        elif not is_document(options.output):
            click.echo(f"{outcome.node}: {outcome.message}")


def _warn_of_breakers(requested: Iterable[Fleet], where: Where) -> None:
    for fleet in requested:
        breaker = fleet.breaker()
        if breaker.tripped_at is not None:
            again = f"{RESET_BREAKER}{where.as_options() or f' --run {fleet.name}'}"
            click.echo(
                f"holdfast: circuit breaker open, all repairs of {fleet.name} paused: "
                f"{breaker.reason}; inspect the nodes, then run: {again}",
                err=True,
            )


def _exit_code(outcomes: Sequence[RequestResult], *, is_done: bool) -> ExitCode:
    if not any(outcome.is_accepted for outcome in outcomes):
        return ExitCode.FAILED
    if not all(outcome.is_accepted for outcome in outcomes):
        return ExitCode.PARTLY_DONE
    return ExitCode.OK if is_done else ExitCode.FAILED


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return f"uid {os.getuid()}"


_when_idle: Final = click.option(
    "--when-idle", is_flag=True, help="Wait until no job runs on the node."
)


_check_now: Final = click.option(
    "--when-idle/--now",
    "when_idle",
    default=True,
    show_default=True,
    help="Wait until no job runs on the node, or stop its jobs. Both respect max_unavailable.",
)


_kinds: Final = click.option(
    "--check",
    "kinds",
    type=click.Choice([kind.value for kind in DeepCheck]),
    multiple=True,
    help="Run the deep health checks with this SageMaker name; InstanceConnectivity includes "
    "tests with other nodes.  [default: as configured]",
)


def _command(name: str, verb: Verb, text: str, *more: Decorator) -> click.Command:
    decorators: tuple[Decorator, ...] = (
        click.argument("node", metavar="NODE...", nargs=-1, shell_complete=node_names),
        click.option(
            "--nodes",
            metavar="NODE,...",
            default="",
            help="Comma-separated node names, instead of NODE...",
        ),
        where_options("Name of the run, if several are active."),
        *more,
        dry_run_option,
        click.option("--wait", is_flag=True, help="Wait until the nodes are schedulable again."),
        click.option(
            "--timeout",
            type=Duration(),
            default="10m",
            show_default=True,
            help="Timeout of --wait.",
        ),
        output_option(*RESULTS),
    )
    callback: Any = partial(_request_repair, verb)
    for decorate in reversed(decorators):  # in the order of decorators above a function
        callback = decorate(callback)
    return examples(
        f"holdfast nodes {name} 0 --wait",
        f"holdfast nodes {name} gpu-17 gpu-18 --platform slurm --dry-run",
    )(click.command(name, help=text)(callback))


reboot: Final = _command(
    "reboot",
    Verb.REBOOT,
    """Reboot nodes.

    Jobs on NODE... are stopped and resume from their last checkpoint.

    Exits with 0 if all requests were accepted, 1 if none was, 3 if only some were.
    """,
    _when_idle,
    yes_option,
)
replace: Final = _command(
    "replace",
    Verb.REPLACE,
    """Replace nodes with new machines.

    Jobs on NODE... are stopped and resume from their last checkpoint.

    Exits with 0 if all requests were accepted, 1 if none was, 3 if only some were.
    """,
    _when_idle,
    yes_option,
)
check: Final = _command(
    "check",
    Verb.DEEP_CHECK,
    """Run a deep health check on nodes.

    The check begins once no job runs on the node, idle nodes first, and never takes more nodes out
    of service than max_unavailable and max_checking allow. Until then jobs use the node as before.
    With --now, jobs are stopped and resume elsewhere. A node that does not pass is replaced.

    Exits with 0 if all requests were accepted, 1 if none was, 3 if only some were.
    """,
    _check_now,
    yes_option,
    _kinds,
)
release: Final = _command(
    "release",
    Verb.RELEASE,
    """Clear the faults of nodes and make them schedulable.

    NODE... accepts jobs again, regardless of earlier findings.

    Exits with 0 if all requests were accepted, 1 if none was, 3 if only some were.
    """,
)


@examples('holdfast nodes hold gpu-17 --why "waits for a new cable"')
@click.command("hold")
@click.argument("node", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
@click.option("--why", default="", help="Reason to show to other operators.")
@where_options("Name of the run, if several are active.")
@dry_run_option
def hold(*, node: tuple[str, ...], why: str, dry_run: bool, **values: Any) -> int:
    """Pause repairs on nodes.

    Faults of NODE... are still detected and marked, and a faulty node gets no jobs. A repair that
    has started continues.

    Exits with 0 if repairs are paused on all nodes, 1 if on none, 3 if only on some.
    """
    return _set_pause(taken(values), node, why or f"paused by {_user()}", dry_run=dry_run)


@examples("holdfast nodes unhold gpu-17")
@click.command("unhold")
@click.argument("node", metavar="NODE...", nargs=-1, required=True, shell_complete=node_names)
@where_options("Name of the run, if several are active.")
@dry_run_option
def unhold(*, node: tuple[str, ...], dry_run: bool, **values: Any) -> int:
    """Resume repairs on nodes.

    Exits with 0 if repairs are resumed on all nodes, 1 if on none, 3 if only on some.
    """
    return _set_pause(taken(values), node, "", dry_run=dry_run)


def _set_pause(where: Where, texts: Sequence[str], reason: str, *, dry_run: bool) -> int:
    """Pause repairs on nodes for a reason, or resume them if it is empty."""
    outcome = "repairs paused" if reason else "repairs resumed"
    with open_fleets(where) as known:
        targets, rejected = _targets(texts, [fleet for fleet in known if fleet.is_active])
        for target in targets:
            if not dry_run:
                target.fleet.hold(target.node, reason)
            click.echo(f"{target.node}: {outcome}{' (dry run)' if dry_run else ''}")
    for text, why in rejected.items():
        click.echo(f"holdfast: {text}: {why}", err=True)
    if not targets:
        return ExitCode.FAILED
    return ExitCode.PARTLY_DONE if rejected else ExitCode.OK


@examples(
    "holdfast nodes reset-breaker", "holdfast nodes reset-breaker --platform kubernetes --yes"
)
@click.command("reset-breaker")
@where_options("Name of the run, if several are active.")
@yes_option
@dry_run_option
@output_option(*RESULTS)
def reset_breaker(*, yes: bool, dry_run: bool, output: str, **values: Any) -> int:
    """Reset the circuit breaker so that repairs resume.

    The circuit breaker pauses all repairs when too many nodes turn faulty at once, because a wrong
    detection is then the likely cause.
    """
    with open_fleets(taken(values)) as known:
        target = only(known)
        if not target.is_active:
            raise NotFound(f"run {target.name} is not active")
        breaker = target.breaker()
        if breaker.tripped_at is not None and not dry_run:
            paused = f"All repairs of {target.name} are paused: {breaker.reason}"
            confirm_or_abort(f"{paused}. Resume repairs?", yes=yes)
            target.close_breaker(SystemClock().now())
        if is_document(output):
            was_open = breaker.tripped_at is not None
            print_document({"run": target.name, "was_open": was_open}, output)
        elif breaker.tripped_at is None:
            click.echo(f"{target.name}: the circuit breaker is closed; repairs are not paused")
        else:
            click.echo(f"{target.name}: repairs {'would ' if dry_run else ''}resume")
    return ExitCode.OK
