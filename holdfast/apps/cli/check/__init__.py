"""``holdfast check``: runs health checks on nodes under load."""
