"""``holdfast inject``: injects faults."""
