"""``holdfast check``."""
