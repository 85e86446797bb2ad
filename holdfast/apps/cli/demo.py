"""``holdfast demo``: runs a training job through four faults."""

import signal
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.output import OutputFormat, format_table, output_option, print_next
from holdfast.apps.demo.demo import DemoSettings, DemoStopped, play
from holdfast.apps.demo.in_job import InJobResult, in_job_timeline, play_in_job
from holdfast.apps.demo.outcome import DemoResult, timeline
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.apps.run.screen import PlainScreen
from holdfast.kit.units import counted

_EPILOG = """\b
Examples:
  holdfast demo
  holdfast demo --torch              the same with PyTorch DDP under torchrun
  holdfast demo --in-job             ranks restart inside the job
  holdfast demo --damage             a damaged checkpoint and a power failure
  holdfast demo --hang               a hang, and the rank that causes it
  holdfast demo --output json        the last line is one JSON object

\b
While it runs, from a second terminal:
  holdfast nodes list --watch
  holdfast incidents list

Exit codes: 0 equal weights, 1 different weights, 2 missing dependency, 130 Ctrl-C
"""


_STEPS: Final = 1200
_TORCH_STEPS: Final = 400
"""Fewer steps, as PyTorch and torchrun take some seconds to load in each of the five attempts."""


@click.command("demo", epilog=_EPILOG)
@click.option("--torch", "use_torch", is_flag=True, help="Train with PyTorch instead of NumPy.")
@click.option(
    "--damage",
    is_flag=True,
    help="Flip a bit in the newest checkpoint and power off its node, instead of the four faults.",
)
@click.option(
    "--hang",
    is_flag=True,
    help="Stop a rank with SIGSTOP so that the job hangs, instead of the four faults.",
)
@click.option(
    "--in-job",
    is_flag=True,
    help="Restart ranks with `holdfast launch`: a killed rank, a hung rank and a lost node.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=100),
    help=f"Steps to train.  [default: {_STEPS}; with --torch {_TORCH_STEPS}]",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Steps between checkpoints.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of weights and batches.")
@output_option(OutputFormat.TABLE, OutputFormat.JSON)
def demo(
    *,
    use_torch: bool,
    damage: bool,
    hang: bool,
    in_job: bool,
    steps: int | None,
    checkpoint_every: int,
    seed: int,
    output: str,
) -> int:
    """Run a training job with four faults and compare its weights with a run without faults.

    The job trains a small character-level language model on the source of Python's standard
    library, data parallel on 2 of 3 local nodes: first without faults, then with XID 74 (the node
    is replaced), XID 73 (the node is rebooted), a killed rank and a node that loses power. With
    --damage, the job resumes from the checkpoint before the newest one. With --hang, it names the
    rank that hangs, restarts, and saves evidence for holdfast jobs evidence.
    With --in-job, launchers on 2 nodes restart the ranks in place, and a spare node takes the place
    of the one that loses power, while the launcher on the other one stays.
    """
    named = {"--damage": damage, "--hang": hang, "--in-job": in_job}
    given = [name for name, is_given in named.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)}: give only one of them")
    stream = sys.stderr if output == OutputFormat.JSON else sys.stdout
    settings = DemoSettings(
        home=default_home(),
        steps=steps or (_TORCH_STEPS if use_torch else _STEPS),
        checkpoint_every=checkpoint_every,
        seed=seed,
        use_torch=use_torch,
        damage=damage,
        hang=hang,
    )
    reported = partial(click.echo, file=stream)

    def screen() -> PlainScreen:
        return PlainScreen(NonblockingOutput(stream), datetime.now(UTC))

    try:
        if in_job:
            return _end_in_job(play_in_job(settings, screen, reported), output)
        outcome = play(settings, screen, reported)
    except DemoStopped as stopped:
        click.echo("The demo was stopped; none of its processes is running.", err=True)
        is_interrupt = stopped.signum == signal.SIGINT
        return ExitCode.INTERRUPTED if is_interrupt else ExitCode.TERMINATED
    if output == OutputFormat.JSON:
        print_next(outcome, output)
    else:
        _print(outcome)
    return ExitCode.OK if outcome.ok else ExitCode.FAILED


def _end_in_job(result: InJobResult, output: str) -> int:
    stream = sys.stderr if output == OutputFormat.JSON else sys.stdout
    if output == OutputFormat.JSON:
        print_next(result, output)
    else:
        click.echo("3. The faults, and the seconds from each to the next step.\n")
        titles, *rows = in_job_timeline(result)
        click.echo("\n".join(format_table(titles, rows, width=None)))
        click.echo(f"\nweights without faults  {result.reference_sha256 or 'missing'}")
        click.echo(f"weights with faults     {result.final_sha256 or 'missing'}")
    if result.ok:
        same = "Weights are identical bit for bit, after 2 restarts in place and an exchange"
        click.echo(f"\n{same}; the demo took {result.seconds:.0f} s.", file=stream)
    else:
        click.echo("\nFAILED: see the output above.", err=True)
    return ExitCode.OK if result.ok else ExitCode.FAILED


def _print(outcome: DemoResult) -> None:
    titles, *rows = timeline(outcome)
    click.echo("3. The timeline, in seconds from each fault.\n")
    if rows:
        click.echo("\n".join(format_table(titles, rows, width=None)))
    click.echo(f"\nweights without faults  {outcome.reference_sha256 or 'missing'}")
    click.echo(f"weights with faults     {outcome.final_sha256 or 'missing'}")
    if outcome.damaged:
        resumed = outcome.resumed_from or "the beginning"
        click.echo(f"\n{outcome.damaged} was damaged; the job resumed from {resumed}.")
    if outcome.verdict:
        click.echo(f"\nThe job hung: {outcome.verdict}.")
    if outcome.ok:
        click.echo(
            f"\nWeights are identical bit for bit, after "
            f"{counted(len(outcome.recoveries), 'recovery', 'recoveries')} and {outcome.steps} "
            f"steps; the demo took {outcome.seconds:.0f} s."
        )
    else:
        click.echo("\nFAILED: see the output above.", err=True)
