"""Second locations of checkpoints, each an implementation of ``ports.checkpoint_copies``."""
