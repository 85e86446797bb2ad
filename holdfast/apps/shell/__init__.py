"""Shell on a node: through a debug pod, srun, ssh or SSM."""
