"""``holdfast slurm``: installs and diagnoses Holdfast on Slurm."""
