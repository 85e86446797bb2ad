"""How many spare nodes a cluster should keep."""

import math
from datetime import timedelta
from typing import Final

_SUFFICE: Final = 0.99
"""Share of the time in which the spares suffice."""


def advised_spares(nodes: int, failures_per_1000_node_days: float, repair_time: timedelta) -> int:
    """The least number of spare nodes with which a job hardly ever waits for a repair.

    Failures that come independently of each other are out of service in numbers that follow
    Poisson's distribution, with the mean rate x nodes x repair time (Palm's theorem: whatever the
    distribution of the repair time). The spares are to cover 99 % of it, and one at least.

    Raises:
        ValueError: a number is negative.

    """
    if nodes < 0 or failures_per_1000_node_days < 0 or repair_time < timedelta(0):
        raise ValueError("nodes, failures and repair time must not be negative")
    if nodes == 0:
        return 0
    mean = nodes * failures_per_1000_node_days / 1000 * (repair_time / timedelta(days=1))
    spares, share, so_far = 0, math.exp(-mean), 0.0
    if share == 0.0:  # a mean beyond 700, where the distribution is normal
        return math.ceil(mean + 2.33 * math.sqrt(mean))
    while so_far + share < _SUFFICE:
        so_far += share
        spares += 1
        share *= mean / spares
    return min(nodes, max(1, spares))
