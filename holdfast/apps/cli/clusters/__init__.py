"""``holdfast clusters``."""
