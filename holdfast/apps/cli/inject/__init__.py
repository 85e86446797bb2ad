"""``holdfast inject``."""
