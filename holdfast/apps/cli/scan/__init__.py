"""``holdfast scan``."""
