"""The controller: one process that repairs the nodes and resumes the jobs of a cluster."""
