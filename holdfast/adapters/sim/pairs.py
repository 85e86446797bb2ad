"""Tests between two simulated nodes."""

from random import Random

from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.world import SimNode, World, nth
from holdfast.model.nodes import PairOutcome


def start_pair(world: World, node: str, partner: str, test_id: str) -> None:
    """Start a test, unless it has started already or the node does not exist."""
    one, other = world.nodes.get(node), world.nodes.get(partner)
    if one is None or other is None or one.pair_id == test_id:
        return
    machines = (one.machine, other.machine)
    if any(machine.power is not Power.ON for machine in machines):
        return
    world.observer.pair_started(one, other)
    one.pair_id, one.pair = test_id, None
    number = world.owner.pairs
    world.owner.pairs += 1
    is_silent = nth(world.hardware.silent_pairs, number, good=False)
    boots = [machine.boot for machine in machines]

    def end() -> None:
        is_same = one.pair_id == test_id and one.machine is machines[0]
        if not is_same or is_silent is None or other.machine is not machines[1]:
            return
        if [machine.boot for machine in machines] != boots:
            return
        has_failed = _fails(world, machines, number)
        one.pair = PairOutcome(
            partner=partner,
            passed=None if is_silent else not has_failed,
            ended_at=world.now,
            detail="simulated" if is_silent or has_failed else "",
        )
        world.has_changes = True

    world.after(world.hardware.pair_time, end)


def pair_outcome(node: SimNode) -> PairOutcome | None:
    """Outcome of the test that is stored with a node."""
    pairing = node.record.pairing
    if pairing is None or pairing.began_at is None:
        return None
    return node.pair if node.pair_id == pairing.began_at.isoformat() else None


def _fails(world: World, machines: tuple[SimMachine, SimMachine], number: int) -> bool:
    """Whether the test with this number fails; flaws act independently."""
    flaws = sum(machine.number in world.hardware.flawed for machine in machines)
    ends = sorted(machine.number for machine in machines)
    flaws += sum(sorted(link) == ends for link in world.hardware.flawed_links)
    random = Random(f"{world.hardware.flaws_seed} {number}")  # noqa: S311 - no cryptography here
    return any(random.random() < world.hardware.flaws_show for _ in range(flaws))
