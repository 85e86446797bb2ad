"""Which faults of a node's checks remain after a later check in the same boot."""

from collections.abc import Collection
from typing import Final

from holdfast.model.health import Fault
from holdfast.model.names import Reason

_COUNTS: Final = frozenset((Reason.GPU_COUNT, Reason.EFA_COUNT, Reason.NEURON_COUNT))
"""Faults that a reading shows to have ended: a driver that is loaded late, or again by an
administrator, brings devices back without a reboot. The agent withdraws its own in the same way."""


def verdict_after(
    before: Collection[Fault],
    found: Collection[Fault],
    present: Collection[str],
    *,
    families: Collection[str] | None = None,
) -> tuple[Fault, ...]:
    """Return the faults of a node after a check.

    A fault under load, of memory or of a link remains: a check that passes later does not show that
    the hardware was repaired.

    Args:
        before: faults of earlier checks in this boot.
        found: faults that the check has found.
        present: reasons of counts that the check has read to be as expected.
        families: families of faults that the check would have found again; None for all. A count of
            the drivers' files does not show whether a tool finds the devices.

    """
    keys = {fault.key for fault in before}
    again = {fault.key for fault in found}
    kept = (
        fault
        for fault in before
        if fault.key in again
        or fault.reason not in _COUNTS.intersection(present)
        or (families is not None and fault.family not in families)
    )
    return (*kept, *(fault for fault in found if fault.key not in keys))
