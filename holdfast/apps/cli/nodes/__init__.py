"""``holdfast nodes``."""
