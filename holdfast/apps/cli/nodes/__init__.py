"""``holdfast nodes``: lists, repairs and checks nodes."""
