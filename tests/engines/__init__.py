"""Real and fake engines for tests: Kubernetes control plane, Slurm clusters, PostgreSQL."""
