"""The controller: one process that looks after all nodes of a cluster."""
