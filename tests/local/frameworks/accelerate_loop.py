"""The training loop of Accelerate's quick tour."""

import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
for inputs, targets in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
    optimizer.step()
rank, world = accelerator.process_index, accelerator.num_processes
print(f"trained rank {rank} of {world}", flush=True)
accelerator.end_training()
os._exit(0)  # Python's own exit takes a second to destroy what was imported
