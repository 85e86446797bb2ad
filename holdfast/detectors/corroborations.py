"""Corroboration of findings of the kernel log by other samples.

A line of the kernel log can be forged by anyone who may write to ``/dev/kmsg`` or open a Neuron
device. A missing device, an increased counter and the responses of a GPU's driver cannot be forged
that way.
"""

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from holdfast.detectors import (
    efa_log,
    gpu_dcgm,
    gpu_dcgm_policy,
    gpu_driver,
    gpu_state,
    gpu_sxid,
    gpu_xid,
    host_hardware,
    memory_state,
    network_state,
    neuron_log,
    neuron_state,
)
from holdfast.detectors.causes import moments
from holdfast.model.health import Fault, Finding
from holdfast.model.names import Reason

_NUMBER: Final = re.compile(r"(?:nd|neuron)([0-9]{1,4})(?:/|\Z)")
_PCI: Final = re.compile(r"[0-9a-fA-F]{4,8}:([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.[0-7]")


def _is_same_neuron(suspect: str, corroboration: str) -> bool:
    """``nd3`` of the log is ``neuron3`` of sysfs, and has the cores ``neuron3/neuron_core0`` ..."""
    one, other = _NUMBER.match(suspect), _NUMBER.match(corroboration)
    return one is not None and other is not None and int(one[1]) == int(other[1])


def _is_same_efa(suspect: str, corroboration: str) -> bool:
    """``rdmap160s25`` is at the address ``0000:a0:19.0``; ``rdmap160s25/1`` is its port."""
    device = corroboration.partition("/")[0]
    address = _PCI.fullmatch(suspect)
    if address is None:
        return suspect == device
    return device == f"rdmap{int(address[1], 16)}s{int(address[2], 16)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Corroboration:
    """Faults of one family, and notices with one of the reasons ``notices``, that corroborate."""

    family: str
    is_same: Callable[[str, str], bool] = lambda _suspect, _corroboration: True
    """Whether the device of a suspect and that of its corroboration are one; where either names
    none, they may be."""

    reasons: Collection[Reason] = ()
    """Reasons of faults; empty for all."""

    notices: Collection[Reason] = ()
    of: Collection[Reason] = ()
    """Reasons of the suspects that it corroborates; empty for all."""


_GPU: Final = (
    _Corroboration(family=gpu_state.FAMILY, is_same=operator.eq),
    _Corroboration(family=gpu_dcgm.FAMILY),  # it numbers GPUs differently
    _Corroboration(family=gpu_dcgm_policy.FAMILY),
)
_MISSING: Final = (Reason.GPU_COUNT, Reason.GPU_LOST, Reason.NEURON_COUNT, Reason.EFA_COUNT)
_LINKS_AND_LOSSES: Final = (Reason.GPU_FABRIC, Reason.GPU_LOST, Reason.GPU_COUNT)

_CORROBORATIONS: Final = {
    gpu_xid.FAMILY: _GPU,
    gpu_driver.FAMILY: _GPU,
    gpu_sxid.FAMILY: (
        _Corroboration(family=gpu_state.FAMILY, reasons=_LINKS_AND_LOSSES),
        _Corroboration(family=gpu_dcgm.FAMILY),
    ),
    neuron_log.FAMILY: (
        _Corroboration(family=neuron_state.STATE, is_same=_is_same_neuron),
        _Corroboration(family=neuron_state.LISTED, is_same=_is_same_neuron),
        _Corroboration(
            family=neuron_state.EVENTS,
            is_same=_is_same_neuron,
            notices=(Reason.NEURON_HARDWARE,),
        ),
    ),
    efa_log.FAMILY: (
        _Corroboration(family=network_state.STATE, is_same=_is_same_efa),
        _Corroboration(
            family=network_state.EVENTS, is_same=_is_same_efa, notices=(Reason.EFA_COUNTER,)
        ),
    ),
    host_hardware.FAMILY: (
        _Corroboration(
            family=host_hardware.FAMILY,
            reasons=(Reason.EDAC_UNCORRECTED,),
            of=(Reason.MACHINE_CHECK, Reason.CPER_FATAL),
        ),
        _Corroboration(
            family=memory_state.EVENTS,
            of=(Reason.EDAC_UNCORRECTED, Reason.MACHINE_CHECK, Reason.CPER_FATAL),
        ),
        *(
            _Corroboration(family=family, reasons=_MISSING, of=(Reason.PCIE_FATAL,))
            for family in (gpu_state.FAMILY, neuron_state.STATE, network_state.STATE)
        ),
    ),
}
"""Possible corroborations by the family of the suspect."""

SUPPORTERS: Final = defaultdict(
    frozenset[str],
    {name: frozenset(row.family for row in rows) for name, rows in _CORROBORATIONS.items()},
)
"""By the family of the suspect, the families of what may support it."""

SUPPORTED_BY: Final = {
    supporter: tuple(name for name, families in SUPPORTERS.items() if supporter in families)
    for supporter in frozenset[str]().union(*SUPPORTERS.values())
}
"""By the family of a reading, the families of the suspects that it may support."""

CORROBORATED: Final = (
    "gpu-xid",
    "gpu-sxid",
    "gpu-driver",
    "neuron-log",
    "efa-log",
    "host-hardware",
)
"""Detectors whose findings can be corroborated."""


def supports(corroboration: Fault | Finding, suspect: Fault) -> bool:
    """Return whether ``corroboration``, a fault or a notice, corroborates ``suspect``."""
    return _is_in_time(corroboration, suspect) and any(
        _corroborates(row, corroboration, suspect)
        for row in _CORROBORATIONS.get(suspect.family, ())
    )


def _corroborates(row: _Corroboration, corroboration: Fault | Finding, suspect: Fault) -> bool:
    if isinstance(corroboration, Fault):
        is_evidence = not corroboration.corroborated_within and (
            not row.reasons or corroboration.reason in row.reasons
        )
    else:
        is_evidence = corroboration.reason in row.notices
    return (
        is_evidence
        and corroboration.family == row.family
        and (not row.of or suspect.reason in row.of)
        and (
            not suspect.device
            or not corroboration.device
            or row.is_same(suspect.device, corroboration.device)
        )
    )


def _is_in_time(corroboration: Fault | Finding, suspect: Fault) -> bool:
    within = suspect.corroborated_within
    if (
        isinstance(corroboration, Fault) and corroboration.seen_at is None
    ):  # a state, and it still holds
        return max(moments(suspect)) >= corroboration.since - within
    return any(
        abs(at - then) <= within for at in moments(suspect) for then in moments(corroboration)
    )
