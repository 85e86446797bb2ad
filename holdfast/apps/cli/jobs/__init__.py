"""``holdfast jobs``."""
