"""Checkpoints of training frameworks, as they lie on disk."""
