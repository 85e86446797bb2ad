"""Slurm's commands and their output."""
