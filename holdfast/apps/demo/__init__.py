"""The training jobs of the demo: one character model, once in NumPy and once in PyTorch."""
