"""``holdfast slurm``."""
