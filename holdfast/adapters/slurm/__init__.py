"""The Slurm platform: nodes and jobs of a Slurm cluster, through Slurm's own commands."""
