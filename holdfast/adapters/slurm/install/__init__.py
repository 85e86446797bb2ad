"""Installation on a Slurm cluster, and the rules of its doctor."""
