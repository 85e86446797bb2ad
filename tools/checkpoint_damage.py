"""The damage table: kinds of damage to the newest checkpoint, by format, and what Holdfast does.

``tests/checkpoint_damage.json`` has what tests recorded: by kind of damage and recording, the
number of damaged files that were tried, reported, and after which each checkpoint was chosen.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

DAMAGES: Final[Mapping[str, str]] = {
    "half": "each file cut to half its length",
    "empty": "each file cut to 0 bytes",
    "bit": "one flipped bit in the middle of each file",
    "zeros": "512 bytes of zeros in the middle of each file",
    "missing": "each file deleted",
    "other-step": "each file replaced by that of the checkpoint before",
    "tracker": "tracker with garbled content",
    "no-tracker": "tracker with 0 bytes",
    "stale": "tracker or link that names a missing checkpoint",
    "partial": "only the first half of the files is there",
    "rename": "rename at the end of the save lost",
}

RECORDINGS: Final = (
    "dcp/sync", "dcp/async", "dcp/own_index", "megatron/torch_dist", "megatron/torch_dcp",
    "megatron/legacy", "megatron_0_19/torch_dist", "deepspeed/zero_1", "deepspeed/zero_3",
    "deepspeed_universal/universal", "hf_trainer/one_file", "hf_trainer/sharded",
    "accelerate/checkpoints", "lightning/sharded", "ray_train/run", "orbax/one_item",
    "composer/files", "torch_save/zip", "torch_save/legacy",
)  # fmt: skip
"""Recordings in ``tests/recordings/checkpoints``, each with its directory."""

RECORDED: Final = Path(__file__).parents[1] / "tests" / "checkpoint_damage.json"

LOADS: Final = RECORDED.with_name("checkpoint_loads.json")
"""Number of cases in which a checkpoint was chosen, and what loading it with its framework gave."""

TOTAL_TITLES: Final = (
    "Recording", "Tried", "Noticed", "Loaded by the framework", "With the saved values",
)  # fmt: skip

TITLES: Final = ("Recording", "Damage", "Tried", "Reported", "Resumes from", "Framework loads it")


def rows() -> Iterator[tuple[str, ...]]:
    """One row per recording and kind of damage."""
    known = json.loads(RECORDED.read_text(encoding="utf-8"))
    loads = json.loads(LOADS.read_text(encoding="utf-8"))
    for recording in RECORDINGS:
        for damage, title in DAMAGES.items():
            result = known.get(damage, {}).get(recording)
            if result is not None:
                found = result["outcome"]
                loaded = _loaded(loads.get(damage, {}).get(recording))
                yield (
                    recording,
                    title,
                    str(found["tried"]),
                    _reported(found),
                    _chosen(found),
                    loaded,
                )


def totals() -> Iterator[tuple[str, ...]]:
    """One row per recording with the sums over all kinds of damage, and one with all sums.

    The number of cases in which the framework loaded the chosen checkpoint is out of those in which
    one was chosen.
    """
    known = json.loads(RECORDED.read_text(encoding="utf-8"))
    loads = json.loads(LOADS.read_text(encoding="utf-8"))
    total: Counter[str] = Counter()
    for recording in RECORDINGS:
        own: Counter[str] = Counter()
        for damage in DAMAGES:
            own.update(known.get(damage, {}).get(recording, {}).get("outcome", {}))
            own.update(loads.get(damage, {}).get(recording, {}).get("outcome", {}))
        total.update(own)
        yield _sums(recording, own)
    yield _sums("all", total)


def _sums(name: str, found: Mapping[str, int]) -> tuple[str, ...]:
    chosen = found.get("chosen", 0)
    loaded = found.get("loaded", 0)
    return (
        name,
        str(found["tried"]),
        f"{found['reported']} of {found['tried']}",
        f"{loaded + found['differs']} of {chosen}" if chosen else "not tried",
        f"{loaded} of {chosen}" if chosen else "not tried",
    )


def _reported(found: Mapping[str, int]) -> str:
    return "all" if found["reported"] == found["tried"] else str(found["reported"])


def _loaded(result: Mapping[str, Mapping[str, int]] | None) -> str:
    if result is None:
        return "not tried"
    found = result["outcome"]
    if not found["chosen"]:
        return "-"
    names = {"loaded": "yes", "differs": "with other values", "fails": "fails"}
    parts = [(name, found[key]) for key, name in names.items() if found[key]]
    if len(parts) == 1:
        return parts[0][0]
    return ", ".join(f"{name} ({count})" for name, count in parts)


def _chosen(found: Mapping[str, int]) -> str:
    names = {
        "before": "the one before", "newest": "the newest", "none": "none, a person decides",
    }  # fmt: skip
    parts = [(name, found[key]) for key, name in names.items() if found[key]]
    if len(parts) == 1:
        return parts[0][0]
    return ", ".join(f"{name} ({count})" for name, count in parts)
