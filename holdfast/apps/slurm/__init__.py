"""Processes on a Slurm cluster: install, doctor, prolog, supervised steps."""
