"""Lightning with FSDP2, whose checkpoints are directories."""

from lightning.pytorch.strategies import ModelParallelStrategy
from lightning_training import Tiny, train
from torch.distributed.fsdp import fully_shard


class Sharded(Tiny):
    def configure_model(self):
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def weights(self):
        return {name: value.full_tensor() for name, value in self.state_dict().items()}


strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=1)
train(Sharded(), "__0_0.distcp", strategy=strategy)
