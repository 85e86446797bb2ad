"""The nodes of a Slurm cluster, by way of Slurm's own commands."""
