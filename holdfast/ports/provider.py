"""The owner of the machines."""

from typing import Protocol

from holdfast.model.nodes import NodeView


class NodeProvider(Protocol):
    """Reboots and replaces machines.

    ``token`` names one order. A call with a token that was seen before changes nothing, so that an
    order can be repeated when its answer was lost. Calls return when the order is accepted, not
    when it is done.
    """

    def reboot(self, node: NodeView, token: str) -> None:
        """Order a reboot; afterwards ``node.boot_id`` is another.

        Raises:
            NodeGone: the machine does not exist any more.
            RetryLater: throttled or not ready; ``after`` says how long to wait.
            ProviderError: refused for another reason.

        """
        ...

    def replace(self, node: NodeView, token: str) -> None:
        """Order another machine in place of this one, which is destroyed.

        Afterwards a new node appears whose ``replaces`` is ``node.name``, or the same node with
        another ``provider_id``. A node has one replacement at most, also for two tokens.

        Raises:
            RetryLater: throttled or no capacity; ``after`` says how long to wait.
            ProviderError: refused for another reason.

        """
        ...
