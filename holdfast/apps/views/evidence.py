"""Bundle of the evidence of a hang: a report, what each rank did, and the ends of the logs."""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.decisions.hang_evidence import HangEvidence, plain_evidence
from holdfast.decisions.kernel_lines import KernelLine, NodeKernelLog
from holdfast.decisions.rank_snapshots import RankSnapshot, groups, is_in_collective
from holdfast.kit.masking import masked_text

LOG_BYTES: Final = 1 << 18
"""Maximum size of the end of a log."""

LOGS_LIMIT: Final = 256
"""Maximum number of logs: with their size, the bundle stays below 100 MiB before compression."""

SUFFIX: Final = ".tar.gz"


def report(evidence: HangEvidence) -> str:
    """Return the evidence as Markdown: the verdict, the ranks by stack, and one row per rank."""
    snapshots = evidence.snapshots
    since = evidence.hung_since
    lines = [
        f"# Hang of {evidence.job}, attempt {evidence.attempt}",
        "",
        f"**Verdict:** {evidence.verdict.text} ({evidence.verdict.kind})",
        "",
        f"- hung since: {since.isoformat(timespec='seconds') if since is not None else 'unknown'}",
        f"- inspected at: {evidence.suspected_at.isoformat(timespec='seconds')}",
        f"- evidence: {evidence.evidence}",
        "",
        "## Stacks",
        "",
        *_stacks(snapshots),
        "## Ranks",
        "",
        "| Rank | Node | PID | State | Wait channel | Accelerator | Note |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {one.rank} | {one.node} | {one.pid or ''} | {one.state} | {one.wait_channel} "
            f"| {_accelerator(one)} | {one.note} |"
            for one in snapshots
        ),
        "",
        *_kernel(evidence.kernel),
        *_helpers(snapshots),
    ]
    return "\n".join(lines) + "\n"


def stacks_text(snapshots: Sequence[RankSnapshot]) -> str:
    """Return the ranks by stack, as Markdown."""
    return "\n".join(_stacks(snapshots)) + "\n"


def shown(evidence: HangEvidence) -> dict[str, Any]:
    """Return the evidence for a page: the verdict, the ranks by stack, and one row per rank."""
    return {
        "attempt": evidence.attempt,
        "verdict": evidence.verdict.text,
        "kind": evidence.verdict.kind.value,
        "named": list(evidence.verdict.ranks),
        "evidence": evidence.evidence,
        "suspected_at": evidence.suspected_at.isoformat(),
        "hung_since": evidence.hung_since.isoformat() if evidence.hung_since else None,
        "groups": [
            {"ranks": list(ranks), "stack": list(stack)}
            for stack, ranks in groups(evidence.snapshots).items()
        ],
        "ranks": [
            {
                "rank": one.rank,
                "node": one.node,
                "pid": one.pid,
                "state": one.state,
                "wait_channel": one.wait_channel,
                "accelerator": _accelerator(one),
                "note": one.note,
            }
            for one in evidence.snapshots
        ],
        "kernel": [
            {"node": one.node, "lines": [_line(line) for line in one.lines], "note": one.note}
            for one in evidence.kernel
        ],
    }


def _accelerator(one: RankSnapshot) -> str:
    return "" if one.accelerator is None else one.accelerator.text


def _kernel(logs: Sequence[NodeKernelLog]) -> Iterator[str]:
    """Yield the kernel lines of each node; nodes without any share a line."""
    yield "## Kernel logs since the last step"
    yield ""
    silent = [one.node for one in logs if not (one.lines or one.note)]
    if silent:
        yield f"No warnings: {', '.join(silent)}"
        yield ""
    for one in logs:
        if one.lines or one.note:
            yield f"### {one.node}"
            yield ""
        if one.note:
            yield f"{one.note}"
            yield ""
        if one.lines:
            yield "```"
            yield from map(_line, one.lines)
            yield "```"
            yield ""


def _line(line: KernelLine) -> str:
    by = "" if line.is_kernel else "(written by a program) "
    return f"{line.at.isoformat(timespec='milliseconds')} {by}{line.text}"


def _stacks(snapshots: Sequence[RankSnapshot]) -> Iterator[str]:
    for stack, ranks in groups(snapshots).items():
        count = "1 rank" if len(ranks) == 1 else f"{len(ranks)} ranks"
        yield f"### {count}: {', '.join(map(str, ranks))}"
        yield ""
        yield "```"
        yield from stack
        yield "```"
        yield ""


def _helpers(snapshots: Sequence[RankSnapshot]) -> Iterator[str]:
    """Yield the other threads and the processes of ranks that do not wait in a collective."""
    yield "## Other threads and processes"
    for one in snapshots:
        if not one.helpers or is_in_collective(one):
            continue
        yield ""
        yield f"### Rank {one.rank}"
        for helper in one.helpers:
            kind = "process" if helper.is_process else "thread"
            yield ""
            yield f"{kind} {helper.id} {helper.name} {helper.state} {helper.wait_channel}".rstrip()
            yield ""
            yield "```"
            yield from (frame.text for frame in helper.frames)
            yield "```"


def write_bundle(evidence: HangEvidence, logs: Iterable[tuple[str, str]], target: Path) -> None:
    """Write a ``.tar.gz`` with ``report.md``, ``evidence.json`` and the ends of the logs.

    Args:
        evidence: evidence of a hang.
        logs: name and end of the log of each node rank; secrets in it are masked.
        target: file to create.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.

    """
    with target.open("xb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as bundle:
        _add(bundle, "report.md", report(evidence))
        _add(bundle, "evidence.json", json.dumps(plain_evidence(evidence), indent=1) + "\n")
        for number, (name, text) in enumerate(logs):
            if number < LOGS_LIMIT:
                _add(bundle, f"logs/{name}", masked_text(text))


def _add(bundle: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8", "replace")
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o600
    bundle.addfile(entry, io.BytesIO(content))
