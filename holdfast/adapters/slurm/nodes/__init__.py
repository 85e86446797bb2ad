"""Nodes of a Slurm cluster: state, checks, reports, leadership."""
