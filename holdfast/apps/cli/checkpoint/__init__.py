"""``holdfast checkpoint``: verifies, selects, copies and watches checkpoints."""
