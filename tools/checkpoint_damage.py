"""The damage table: kinds of damage to the newest checkpoint, by format, and what Holdfast does.

``tests/checkpoint_damage.json`` has what tests recorded: by kind of damage and recording, the
number of damaged files that were tried, reported, and after which each checkpoint was chosen.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

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


class Recording(NamedTuple):
    """A directory of recorded checkpoints, named by the recording and the directory in it."""

    format: str
    newest: str
    before: str


RECORDINGS: Final[Mapping[str, Recording]] = {
    "dcp/sync": Recording("dcp", "step_3", "step_2"),
    "dcp/async": Recording("dcp", "step_3", "step_2"),
    "dcp/fsspec": Recording("dcp", "step_3", "step_2"),
    "dcp/own_index": Recording("dcp", "step_3", "step_2"),
    "megatron/torch_dist": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron/torch_dcp": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron/legacy": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron_0_19/torch_dist": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron_lm/torch_dist": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron_lm/torch_dcp": Recording("megatron", "iter_0000300", "iter_0000200"),
    "megatron_lm/torch": Recording("megatron", "iter_0000300", "iter_0000200"),
    "deepspeed/zero_1": Recording("deepspeed", "global_step3", "global_step2"),
    "deepspeed/zero_3": Recording("deepspeed", "global_step3", "global_step2"),
    "deepspeed_universal/universal": Recording(
        "deepspeed-universal", "global_step3_universal", "global_step2_universal"
    ),
    "hf_trainer/one_file": Recording("hf-trainer", "checkpoint-6", "checkpoint-4"),
    "hf_trainer/sharded": Recording("hf-trainer", "checkpoint-6", "checkpoint-4"),
    "accelerate/checkpoints": Recording("accelerate", "checkpoint_2", "checkpoint_1"),
    "lightning/sharded": Recording("lightning", "epoch=1-step=6.ckpt", "epoch=0-step=4.ckpt"),
    "ray_train/run": Recording(
        "ray-train",
        "checkpoint_2026-11-23_12-03-00.000000",
        "checkpoint_2026-11-23_12-02-00.000000",
    ),
    "torchtitan/disabled": Recording("torchtitan", "step-6", "step-4"),
    "torchtitan/async": Recording("torchtitan", "step-6", "step-4"),
    "dlrover/ddp": Recording("dlrover", "300", "200"),
    "dlrover_agents/fsdp": Recording("dlrover", "300", "200"),
    "dlrover_agents/megatron": Recording("dlrover", "iter_0000300", "iter_0000200"),
    "nvrx_local/alone": Recording("nvrx-local", "iter_0000300", "iter_0000200"),
    "nvrx_local/replicated": Recording("nvrx-local", "iter_0000300", "iter_0000200"),
    "orbax/one_item": Recording("orbax", "300", "200"),
    "composer_sharded/sharded": Recording("composer", "ep3-ba6", "ep2-ba4"),
    "composer/files": Recording("composer", "ep3-ba12-rank0.pt", "ep2-ba8-rank0.pt"),
    "torch_save/zip": Recording("torch-save", "checkpoint_000300.pt", "checkpoint_000200.pt"),
    "torch_save/legacy": Recording("torch-save", "checkpoint_000300.pt", "checkpoint_000200.pt"),
}
"""Recordings in ``tests/recordings/checkpoints``, in the order of the table."""

HANDMADE: Final[Mapping[str, str]] = {
    "nemo": "the names, markers and links of NeMo 2, from the source of 2.5.3, whose `AutoResume`,"
    " run by hand, loaded what Holdfast had chosen; of `megatron` the directory `non_persistent`,"
    " and the trackers and `train_state.pt` of Megatron-Bridge, from the source of 0.6.2. All other"
    " files are those of Megatron-core. The save code of neither was run: it imports packages for"
    " GPUs",
    "neuronx": "NeuronX Distributed, of which the public package index has a placeholder only. The"
    " files are those of `torch.save`",
    "safetensors": "without a framework there is no layout to record; the library wrote the files",
}
"""Formats whose layout tests build, with what is real in it."""

RECORDED: Final = Path(__file__).parents[1] / "tests" / "checkpoint_damage.json"

LOADS: Final = RECORDED.with_name("checkpoint_loads.json")
"""Number of cases in which a checkpoint was chosen, and what loading it with its framework gave."""

FAILED_SAVES: Final = RECORDED.with_name("checkpoint_saves.json")
"""What the scripts that kill saves, or fill the disk, printed: by failure and framework."""

FAILED_SAVE_TITLES: Final = ("Saves by", "Failure", "Rounds", "Incomplete checkpoints moved away")

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


def failed_saves() -> Iterator[tuple[str, ...]]:
    """One row per framework and failure of its saves."""
    known = json.loads(FAILED_SAVES.read_text(encoding="utf-8"))
    for failure, frameworks in known.items():
        for framework, found in frameworks.items():
            yield framework, failure, str(found["rounds"]), str(found["moved"])


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
