"""Registry of network tests that need only this program at both ends."""

from typing import Final

from holdfast.adapters.host.pairs import fabric, replay, tcp
from holdfast.adapters.host.pairs.contract import PairPart

PARTS: Final = (
    PairPart(
        name=tcp.NAME,
        what="one TCP connection is fast enough",
        measure=tcp.measure,
        serve=tcp.serve,
    ),
    PairPart(
        name=fabric.NAME,
        what="libfabric messages arrive intact and fast enough",
        measure=fabric.measure,
        serve=fabric.serve,
    ),
    PairPart(
        name=replay.NAME,
        what="the same deterministic steps have the same results on both nodes, bit by bit",
        measure=replay.measure,
        serve=replay.serve,
        by_default=False,
    ),
)
