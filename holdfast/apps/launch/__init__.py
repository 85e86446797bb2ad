"""``holdfast launch``: runs the ranks of one node and restarts them in place."""
