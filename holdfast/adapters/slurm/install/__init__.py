"""Installation on a Slurm cluster, and the rules of ``holdfast slurm doctor``."""
