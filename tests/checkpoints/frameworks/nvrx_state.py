"""State of a rank for NVRx's local checkpoints, on the CPU: NVRx's own one asserts CUDA."""

from collections.abc import Iterable

import torch
from nvidia_resiliency_ext.checkpointing.local.base_state_dict import TensorAwareStateDict


class CpuState(TensorAwareStateDict):
    """Tensors by name, and the iteration."""

    def __init__(self, iteration: int, rank: int, parts: int = 2, items: int = 64) -> None:
        generator = torch.Generator().manual_seed(1000 * iteration + rank)
        self.iteration = iteration
        self._names = [f"part_{part}" for part in range(parts)]
        self._tensors: list | None = [torch.randn(items, generator=generator) for _ in self._names]

    def pop_tensors(self) -> list:
        found, self._tensors = self._tensors, None
        return found

    @property
    def tensors(self) -> Iterable[torch.Tensor]:
        return iter(self._tensors)

    @property
    def is_hollow(self) -> bool:
        return self._tensors is None

    def insert_tensors(self, tensor_data: Iterable[torch.Tensor]) -> None:
        self._tensors = list(tensor_data)

    def init_tensors(self) -> None:
        self._tensors = [torch.empty(64) for _ in self._names]

    def copy_tensors_to_cpu(self, non_blocking: bool = False) -> None:
        pass

    def restore_tensor_device(self, non_blocking: bool = True) -> None:
        pass
