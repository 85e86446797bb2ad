"""``holdfast hyperpod``."""
