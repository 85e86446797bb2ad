"""What must hold of tests between nodes, in every world."""

from collections.abc import Callable

from holdfast.adapters.sim.cluster import node_view
from holdfast.adapters.sim.world import SimNode, World
from holdfast.model.names import Reason
from holdfast.model.nodes import NodeRecord, Phase

Check = Callable[[bool, str], None]
"""Is given whether a law holds, and what is wrong if it does not."""


def judge_pair(world: World, node: SimNode, partner: SimNode, check: Check) -> None:
    """A test begins between nodes that are under a check, in no other test, and without jobs."""
    what = f"a test between {node.name} and {partner.name} began"
    check(node is not partner, f"{what}, which are one")
    for one in (node, partner):
        check(one.record.phase is Phase.CHECKING, f"{what} while {one.name} is {one.record.phase}")
        check(one.record.pairing is not None, f"{what}, and {one.name} takes no part in tests")
        jobs = _jobs_on(world, one)
        check(not jobs, f"{what} while {jobs} run on {one.name}")
        others = [
            other.name
            for other in world.nodes.values()
            if other is not node
            and other.record.phase is Phase.CHECKING
            and other.record.pairing is not None
            and other.record.pairing.began_at is not None
            and one.name in (other.name, other.record.pairing.partner)
        ]
        check(not others, f"{what} while {one.name} is tested with {others}")


def judge_company(world: World, node: SimNode, before: NodeRecord, check: Check) -> None:
    """Nobody who works is taken for tests, and none is accused where nothing is bad."""
    remediation = node.record.remediation
    if remediation is None or remediation == before.remediation:
        return
    if remediation.reason == Reason.DEEP_CHECK_PARTNER:
        jobs = _jobs_on(world, node)
        check(not jobs, f"{node.name} was taken for tests while {jobs} run there")
    if remediation.reason == Reason.PAIR_FAILED:
        hardware = world.hardware
        is_sound = not (hardware.flawed or hardware.flawed_links or hardware.silent_pairs)
        check(not is_sound, f"{node.name} was accused by tests, and no node is bad")


def _jobs_on(world: World, node: SimNode) -> tuple[str, ...]:
    return node_view(world, node.name).running_jobs
