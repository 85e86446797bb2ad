"""Provider of the simulated machines."""

from holdfast.adapters.sim.call_gate import CallGate
from holdfast.adapters.sim.machine import Power
from holdfast.adapters.sim.scenario import ProviderReply
from holdfast.adapters.sim.world import SimNode, World, nth
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView


class SimProvider:
    """A ``NodeProvider`` over a simulated world."""

    def __init__(self, world: World, gate: CallGate) -> None:
        self._world = world
        self._gate = gate

    def reboot(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.reboot``."""
        with self._gate.safe():
            found = self._found(node)
            if found is None or found.machine.power is Power.REMOVED:
                raise NodeGone(f"machine {node.provider_id} not found")
            answer = self._answer(found, "reboot", token)
            if self._is_new(token, answer):
                self._world.reboot(found.machine)
            self._raise(answer)

    def replace(self, node: NodeView, token: str) -> None:
        """See ``NodeProvider.replace``."""
        with self._gate.safe():
            owner = self._world.owner
            if owner.out_until is not None and self._world.now < owner.out_until:
                raise RetryLater("simulated: no capacity", after=self._world.hardware.retry_after)
            found = self._found(node)
            if found is None:
                return  # already replaced
            answer = self._answer(found, "replace", token)
            if self._is_new(token, answer):
                self._world.replace(found)
            self._raise(answer)

    def _found(self, node: NodeView) -> SimNode | None:
        found = self._world.nodes.get(node.name)
        is_same = found is not None and found.machine.provider_id == node.provider_id
        return found if is_same else None

    def _answer(self, node: SimNode, verb: str, token: str) -> ProviderReply:
        owner = self._world.owner
        answer = nth(self._world.hardware.answers, owner.calls, good=ProviderReply.ACCEPTED)
        owner.calls += 1
        self._world.observer.ordered(node, verb, token, answer)
        return answer

    def _is_new(self, token: str, answer: ProviderReply) -> bool:
        if (
            answer in (ProviderReply.RETRY_LATER, ProviderReply.REFUSED)
            or token in self._world.owner.tokens
        ):
            return False
        self._world.owner.tokens.add(token)
        return True

    def _raise(self, answer: ProviderReply) -> None:
        match answer:
            case ProviderReply.RETRY_LATER:
                raise RetryLater("simulated: throttled", after=self._world.hardware.retry_after)
            case ProviderReply.REFUSED:
                raise ProviderError("simulated: not permitted")
            case ProviderReply.LOST:
                raise ProviderError("simulated: no response in time")
            case ProviderReply.ACCEPTED:
                return
