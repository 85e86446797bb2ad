"""``holdfast demo``: runs a training job through four faults."""

import signal
import sys
from datetime import UTC, datetime
from typing import Final

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.output import OutputFormat, format_table, output_option, print_next
from holdfast.apps.demo.demo import DemoSettings, DemoStopped, play
from holdfast.apps.demo.outcome import DemoResult, timeline
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.apps.run.screen import PlainScreen

_EPILOG = """\b
Examples:
  holdfast demo
  holdfast demo --torch                   the same with PyTorch DDP under torchrun
  holdfast demo --output json             the last line is one JSON object

\b
While it runs, from a second terminal:
  holdfast nodes list --watch
  holdfast incidents list

\b
Exit codes: 0 the weights are the same, 1 they are not, 2 something is missing, 130 Ctrl-C
"""


_STEPS: Final = 1200
_TORCH_STEPS: Final = 400
"""Fewer steps, as PyTorch and torchrun take some seconds to load in each of the five attempts."""


@click.command("demo", epilog=_EPILOG)
@click.option("--torch", "use_torch", is_flag=True, help="Train with PyTorch instead of NumPy.")
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
    *, use_torch: bool, steps: int | None, checkpoint_every: int, seed: int, output: str
) -> int:
    """Run a training job through four faults and compare its weights with an undisturbed run.

    The job trains a small character-level language model on the source of Python's standard
    library, data parallel on 2 of 3 local nodes: first undisturbed, then through XID 74 (the node
    is replaced), XID 73 (the node is rebooted), a killed rank and a node that loses power.
    """
    stream = sys.stderr if output == OutputFormat.JSON else sys.stdout
    settings = DemoSettings(
        home=default_home(),
        steps=steps or (_TORCH_STEPS if use_torch else _STEPS),
        checkpoint_every=checkpoint_every,
        seed=seed,
        use_torch=use_torch,
    )
    try:
        outcome = play(
            settings,
            screen=lambda: PlainScreen(NonblockingOutput(stream), datetime.now(UTC)),
            reported=lambda line: click.echo(line, file=stream),
        )
    except DemoStopped as stopped:
        click.echo("The demo was stopped; none of its processes is running.", err=True)
        is_interrupt = stopped.signum == signal.SIGINT
        return ExitCode.INTERRUPTED if is_interrupt else ExitCode.TERMINATED
    if output == OutputFormat.JSON:
        print_next(outcome, output)
    else:
        _print(outcome)
    return ExitCode.OK if outcome.ok else ExitCode.FAILED


def _print(outcome: DemoResult) -> None:
    titles, *rows = timeline(outcome)
    click.echo("3. The timeline, in seconds from each fault.\n")
    if rows:
        click.echo("\n".join(format_table(titles, rows, width=None)))
    click.echo(f"\nundisturbed weights  {outcome.undisturbed_sha256 or 'missing'}")
    click.echo(f"disturbed weights    {outcome.final_sha256 or 'missing'}")
    if outcome.ok:
        click.echo(
            f"\nWeights are identical bit for bit, after {len(outcome.recoveries)} recoveries "
            f"and {outcome.steps} "
            f"steps; the demo took {outcome.seconds:.0f} s."
        )
    else:
        click.echo("\nFAILED: see the output above.", err=True)
