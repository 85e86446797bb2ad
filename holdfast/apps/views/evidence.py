"""Bundle of the evidence of a hang: a report, what each rank did, and the ends of the logs."""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.decisions.rank_snapshots import RankSnapshot, groups, is_in_collective
from holdfast.kit.bounded_files import parse_json, read_end
from holdfast.kit.masking import masked_text
from holdfast.kit.serial import from_plain

_LOG_BYTES: Final = 1 << 18
_EVIDENCE_BYTES: Final = 1 << 26
_LOGS_LIMIT: Final = 256
"""Maximum number of logs: with their size, the bundle stays below 64 MiB before compression."""


def read_evidence(file: Path) -> dict[str, Any]:
    """Return the stored evidence of one attempt.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.

    """
    evidence = parse_json(read_end(file, _EVIDENCE_BYTES).decode("utf-8"))
    if not isinstance(evidence, dict):
        raise ValueError(f"{file}: expected a JSON object")
    return evidence


def report(evidence: Mapping[str, Any]) -> str:
    """Return the evidence as Markdown: the verdict, the ranks by stack, and one row per rank."""
    snapshots = [from_plain(RankSnapshot, one) for one in evidence["ranks"]]
    lines = [
        f"# Hang of {evidence['job']}, attempt {evidence['attempt']}",
        "",
        f"**Verdict:** {evidence['verdict']['text']} ({evidence['verdict']['kind']})",
        "",
        f"- hung since: {evidence['hung_since']}",
        f"- looked at: {evidence['suspected_at']}",
        f"- evidence: {evidence['evidence']}",
        "",
        "## Stacks",
        "",
        *_stacks(snapshots),
        "## Ranks",
        "",
        "| Rank | Node | PID | State | Wait channel | Note |",
        "|---|---|---|---|---|---|",
        *(
            f"| {one.rank} | {one.node} | {one.pid or ''} | {one.state} | {one.wait_channel} "
            f"| {one.note} |"
            for one in snapshots
        ),
        "",
        *_helpers(snapshots),
    ]
    return "\n".join(lines) + "\n"


def stacks_text(snapshots: Sequence[RankSnapshot]) -> str:
    """Return the ranks by stack, as Markdown."""
    return "\n".join(_stacks(snapshots)) + "\n"


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


def write_bundle(evidence: Mapping[str, Any], logs: Mapping[int, Path], target: Path) -> None:
    """Write a ``.tar.gz`` with ``report.md``, ``evidence.json`` and the ends of the logs.

    Args:
        evidence: what ``read_evidence`` returns.
        logs: log of each node rank of the attempt.
        target: file to create.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be written.

    """
    with target.open("xb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as bundle:
        _add(bundle, "report.md", report(evidence))
        _add(bundle, "evidence.json", json.dumps(evidence, indent=1) + "\n")
        for _, log in sorted(logs.items())[:_LOGS_LIMIT]:
            try:
                text = read_end(log, _LOG_BYTES).decode("utf-8", "replace")
            except OSError:
                continue
            _add(bundle, f"logs/{log.name}", masked_text(text))


def _add(bundle: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode("utf-8")
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o600
    bundle.addfile(entry, io.BytesIO(content))
