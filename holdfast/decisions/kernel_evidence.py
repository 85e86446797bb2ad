"""What the kernels of a hung job's nodes report beside the verdict: pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from holdfast.decisions.kernel_causes import ROWS, KernelCause, cause_of_line, gpu_address
from holdfast.decisions.kernel_lines import KernelLine, NodeKernelLog
from holdfast.decisions.rank_accelerators import is_at
from holdfast.decisions.rank_snapshots import RankSnapshot

_NODES: Final = 2
_CAUSES: Final = 2
"""Maximum number of nodes, and of causes of each, that a verdict quotes."""

_CHARS: Final = 160
"""Maximum length of a line in a verdict."""


def kernel_text(
    logs: Iterable[NodeKernelLog], snapshots: Sequence[RankSnapshot], named: Collection[int]
) -> str:
    """Return the kernel lines that may explain a hang, those of the named ranks' nodes first.

    Only lines that the kernel itself wrote count. Empty if there are none.

    Args:
        logs: kernel logs since the last step.
        snapshots: of all ranks.
        named: ranks that the others wait for.

    """
    first = {one.node for one in snapshots if one.rank in named}
    found = [(one, causes) for one in logs if (causes := _causes(one.lines))]
    found.sort(key=lambda one: one[0].node not in first)
    texts = [
        f"kernel on {log.node}: {_text(row, line, log.node, snapshots)}"
        for log, causes in found[:_NODES]
        for row, line in causes[:_CAUSES]
    ]
    if more := len(found) - _NODES:
        texts += [f"the kernels of {more} more nodes report such lines, too"] if more > 0 else []
    return "; ".join(texts)


def _causes(lines: Iterable[KernelLine]) -> list[tuple[KernelCause, KernelLine]]:
    """Return the first line of each known cause, causes before their consequences."""
    found: dict[KernelCause, KernelLine] = {}
    for line in lines:
        row = cause_of_line(line.text) if line.is_kernel else None
        if row is not None:
            found.setdefault(row, line)
    return sorted(found.items(), key=lambda one: ROWS.index(one[0]))


def _text(row: KernelCause, line: KernelLine, node: str, snapshots: Sequence[RankSnapshot]) -> str:
    address = gpu_address(line.text)
    owner = next(
        (
            one.rank
            for one in snapshots
            if address is not None
            and one.node == node
            and one.accelerator is not None
            and is_at(one.accelerator, address)
        ),
        None,
    )
    what = row.text if owner is None else f"{row.text} of the GPU of rank {owner}"
    return f"{what}: {line.text[:_CHARS]}"
