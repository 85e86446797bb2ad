"""Recommended number of spare nodes of a cluster."""

import math
from datetime import timedelta
from typing import Final

_SUFFICE: Final = 0.99
"""Share of the time in which the spares suffice."""


def advised_spares(nodes: int, failures_per_1000_node_days: float, repair_time: timedelta) -> int:
    """Return the minimum number of spare nodes with which a job hardly ever waits for a repair.

    The number of nodes out of service by independent failures follows Poisson's distribution, with
    the mean rate x nodes x repair time (Palm's theorem: whatever the distribution of the repair
    time). The spares cover 99 % of it, and are one at least.

    Raises:
        ValueError: a number is negative.

    """
    if nodes < 0 or failures_per_1000_node_days < 0 or repair_time < timedelta(0):
        raise ValueError("nodes, failures and repair time must not be negative")
    if nodes == 0:
        return 0
    mean = nodes * failures_per_1000_node_days / 1000 * (repair_time / timedelta(days=1))
    # Fewer than ten standard deviations below the mean have a share of 1e-23.
    spares = max(0, math.floor(mean - 10 * math.sqrt(mean)))
    share = math.exp(spares * math.log(mean) - mean - math.lgamma(spares + 1)) if mean else 1.0
    cumulative = 0.0
    while cumulative + share < _SUFFICE:
        cumulative += share
        spares += 1
        share *= mean / spares
    return min(nodes, max(1, spares))
