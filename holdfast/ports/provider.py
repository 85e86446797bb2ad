"""Port of the machine provider."""

from typing import Protocol

from holdfast.model.nodes import NodeView


class NodeProvider(Protocol):
    """Reboots and replaces machines.

    ``token`` identifies one order. A repeated call with the same token has no effect, so that an
    order can be repeated when its response was lost. Calls return when the order is accepted, not
    when it is done. A machine that has neither the name nor an address of the node is not the
    node's: it gets no order, whatever ``node.provider_id`` is.
    """

    def reboot(self, node: NodeView, token: str) -> None:
        """Order a reboot; it changes ``node.boot_id``.

        Raises:
            NodeGone: the machine does not exist any more.
            RetryLater: throttled or not ready; ``after`` is the delay.
            ProviderError: refused for another reason.

        """
        ...

    def replace(self, node: NodeView, token: str) -> None:
        """Order another machine for this node; the present one is destroyed.

        Afterwards a new node appears whose ``replaces`` is ``node.name``, or the same node with
        another ``provider_id``. A node has one replacement at most, also for two tokens.

        Raises:
            RetryLater: throttled or no capacity; ``after`` is the delay.
            ProviderError: refused for another reason.

        """
        ...
