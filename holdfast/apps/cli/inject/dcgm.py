"""``holdfast inject dcgm``: injects a GPU fault into DCGM on this machine."""

import shlex
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import click

from holdfast.adapters.host.commands import run_command
from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import RESULTS, is_document, output_option, print_document
from holdfast.model.errors import BackendError, ConfigError

_TIMEOUT: Final = timedelta(seconds=30)
_XID: Final = "xid"

_FIELDS: Final = {
    "memory-errors": (319, 4),
    "row-remap-pending": (396, 1),
    "row-remap-failed": (395, 1),
    _XID: (230, None),
}
"""``fault -> (DCGM field, value)``; 319 with 4 is the example of HyperPod's guide. Fields are given
by number, as their names changed with DCGM 4.6 (dcgm_fields.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Injected:
    fault: str
    command: str
    dry_run: bool
    answer: str
    """Output of dcgmi; empty for a dry run."""


@examples("holdfast inject dcgm xid 79 --gpu 3 --dry-run")
@click.command("dcgm")
@click.argument("fault", type=click.Choice(list(_FIELDS)))
@click.argument("code", type=click.IntRange(min=1), required=False)
@click.option(
    "--gpu", type=click.IntRange(min=0), default=0, show_default=True, help="Index of the GPU."
)
@click.option("--dry-run", is_flag=True, help="Print the command and exit.")
@output_option(*RESULTS)
def inject_dcgm(*, fault: str, code: int | None, gpu: int, dry_run: bool, output: str) -> None:
    """Inject a GPU fault into DCGM on this machine.

    Sets a field value in DCGM's host engine: its health checks and policies see the fault,
    nvidia-smi and the kernel log do not. CODE is the XID number and applies to the fault xid only.
    """
    argv = _command(fault, code, gpu)
    answer = "" if dry_run else _run(argv)
    injected = _Injected(fault=fault, command=shlex.join(argv), dry_run=dry_run, answer=answer)
    if is_document(output):
        print_document(injected, output)
        return
    click.echo(f"{'Would run' if dry_run else 'Ran'}: {injected.command}")
    if answer:
        click.echo(answer)
    click.echo(
        "Check the effect with: dcgmi health --check, and with the DCGM monitoring of this machine"
    )


def _command(fault: str, code: int | None, gpu: int) -> list[str]:
    field, value = _FIELDS[fault]
    if (code is None) == (fault == _XID):
        raise ConfigError(
            f"{fault}: "
            + ("CODE is missing, expected the XID" if code is None else "CODE applies to xid only")
        )
    value = code if value is None else value
    return ["dcgmi", "test", "--inject", "--gpuid", str(gpu), "-f", str(field), "-v", str(value)]


def _run(argv: list[str]) -> str:
    if shutil.which(argv[0]) is None:
        raise ConfigError("dcgmi not found: install DCGM, or print the command with --dry-run")
    result = run_command(argv, timeout=_TIMEOUT)
    answer = (result.stdout.strip() or result.stderr.strip())[:1000]
    if result.status != 0:
        raise BackendError(f"{shlex.join(argv)} exited with {result.status}: {answer}")
    return answer
