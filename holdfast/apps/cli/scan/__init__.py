"""``holdfast scan``: evaluates captured logs and tool output."""
