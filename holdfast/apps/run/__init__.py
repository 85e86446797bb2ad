"""``holdfast run``: a cluster embedded in one machine, and the job on it."""
