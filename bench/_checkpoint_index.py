"""Checkpoints of PyTorch to measure on: a DCP index as of 1,000 ranks, and a file of tensors."""

import pickle
from pathlib import Path

SHARDS = 1000
LENGTH = 1 << 20
"""Bytes of a tensor in a shard, all of them a hole."""


def save(folder: Path, count: int, tensors: int = 1) -> None:
    """Write ``count`` checkpoints, as FSDP saves them: each rank has a part of each tensor."""
    content = _index(tensors)
    for step in range(1, count + 1):
        path = folder / f"step_{step}"
        path.mkdir(parents=True)
        for rank in range(SHARDS):
            with (path / _shard(rank)).open("wb") as file:
                file.truncate(LENGTH * tensors)
        (path / ".metadata").write_bytes(content)


def save_tensors(path: Path, size: int) -> None:
    """Write a file of ``torch.save`` with random tensors of ``size`` bytes together."""
    import torch  # noqa: PLC0415 - takes a second

    count = 16
    part = torch.randint(0, 256, (size // count,), dtype=torch.uint8)
    torch.save({str(number): part.clone() for number in range(count)}, path)


def _shard(rank: int) -> str:
    return f"__{rank}_0.distcp"


def _index(tensors: int) -> bytes:
    import torch  # noqa: PLC0415 - takes a second
    from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: PLC0415
    from torch.distributed.checkpoint.metadata import (  # noqa: PLC0415
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    items, stored = LENGTH // 4, {}
    names = [f"model.layers.{number}.weight" for number in range(tensors)]
    chunks = [
        ChunkStorageMetadata(
            offsets=torch.Size([rank * items // 2]), sizes=torch.Size([items // 2])
        )
        for rank in range(SHARDS)
    ]
    state = {
        name: TensorStorageMetadata(
            properties=TensorProperties(dtype=torch.float32),
            size=torch.Size([SHARDS * items // 2]),
            chunks=chunks,
        )
        for name in names
    }
    for number, name in enumerate(names):
        for rank, chunk in enumerate(chunks):
            stored[MetadataIndex(name, chunk.offsets, rank)] = _StorageInfo(
                _shard(rank), number * LENGTH, LENGTH
            )
    metadata = Metadata(
        state_dict_metadata=state,
        planner_data={name: tuple(name.split(".")) for name in names},
        storage_data=stored,
    )
    return pickle.dumps(metadata, protocol=4)
