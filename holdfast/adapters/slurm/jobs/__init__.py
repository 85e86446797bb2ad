"""Batch jobs on Slurm: requeue, hold, exchange of nodes, supervision."""
