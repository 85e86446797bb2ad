"""Contract of ``NodeProvider``: test classes to inherit from, as in ``contracts``."""

from contextlib import suppress
from typing import Protocol

from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.provider import NodeProvider
from holdfast.testing.contracts import view


class ProviderHarness(Protocol):
    """The owner of the machine of a cluster of one node that has booted."""

    cluster: ClusterBackend
    provider: NodeProvider
    node: str

    def settle(self) -> None:
        """Let pass as much time as any order takes."""
        ...


class IdentityHarness(ProviderHarness, Protocol):
    """An owner of machines that has another machine, beside that of the node."""

    def misled(self) -> NodeView:
        """The node with the provider ID of the other machine, and its own name and addresses."""
        ...

    def is_untouched(self) -> bool:
        """Whether the other machine got no order."""
        ...


class DurableProviderHarness(ProviderHarness, Protocol):
    """An owner of machines that outlives the process that talks to it."""

    def reopened(self) -> NodeProvider:
        """The same owner, as the next controller talks to it."""
        ...


class ReplacedIdentityContract:
    """``NodeProvider.replace`` for a node whose provider ID is that of somebody else's machine."""

    def test_no_machine_of_somebody_else_is_replaced(self, harness: IdentityHarness) -> None:
        with suppress(ProviderError):
            harness.provider.replace(harness.misled(), "incident/1")
        harness.settle()

        assert harness.is_untouched()


class RebootedIdentityContract:
    """``NodeProvider.reboot`` for a node whose provider ID is that of somebody else's machine."""

    def test_no_machine_of_somebody_else_is_rebooted(self, harness: IdentityHarness) -> None:
        with suppress(ProviderError):
            harness.provider.reboot(harness.misled(), "incident/1")
        harness.settle()

        assert harness.is_untouched()


class IdentityContract(ReplacedIdentityContract, RebootedIdentityContract):
    """``NodeProvider`` for a node whose provider ID is that of somebody else's machine."""


class RebootContract:
    """``NodeProvider.reboot``."""

    def test_a_reboot_gives_another_boot_of_the_same_machine(
        self, harness: ProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        after = view(harness.cluster, harness.node)
        assert after.provider_id == before.provider_id
        assert after.boot_id != before.boot_id

    def test_an_order_acts_once_however_often_it_is_given(self, harness: ProviderHarness) -> None:
        before = view(harness.cluster, harness.node)
        harness.provider.reboot(before, "incident/1")
        harness.settle()
        once = view(harness.cluster, harness.node)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        assert view(harness.cluster, harness.node).boot_id == once.boot_id


class DurableRebootContract:
    """What ``NodeProvider.reboot`` must still know after its controller has died."""

    def test_a_reboot_repeated_by_the_next_controller_gives_no_second_boot(
        self, harness: DurableProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)
        harness.provider.reboot(before, "incident/1")  # and its answer is lost
        harness.settle()
        once = view(harness.cluster, harness.node)
        assert once.boot_id != before.boot_id

        harness.reopened().reboot(before, "incident/1")
        harness.settle()
        assert view(harness.cluster, harness.node).boot_id == once.boot_id

        harness.reopened().reboot(once, "incident/2")
        harness.settle()
        assert view(harness.cluster, harness.node).boot_id != once.boot_id


class ReplaceContract:
    """``NodeProvider.replace``."""

    def test_a_node_has_one_replacement_however_many_are_ordered(
        self, harness: ProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)

        for token in ("incident/1", "incident/1", "incident/2"):
            harness.provider.replace(before, token)
            harness.settle()

        (successor,) = [one for one in harness.cluster.snapshot().nodes if one.replaces]
        assert successor.replaces == harness.node
        assert successor.provider_id != before.provider_id


class ProviderContract(RebootContract, ReplaceContract):
    """``NodeProvider``."""


class DurableReplaceContract:
    """What ``NodeProvider.replace`` must still know after its controller has died."""

    def test_an_order_repeated_by_the_next_controller_gives_no_second_replacement(
        self, harness: DurableProviderHarness
    ) -> None:
        before = view(harness.cluster, harness.node)
        harness.provider.replace(before, "incident/1")  # and its answer is lost

        harness.reopened().replace(before, "incident/1")
        harness.settle()
        harness.reopened().replace(before, "incident/1")
        harness.settle()

        (successor,) = [one for one in harness.cluster.snapshot().nodes if one.replaces]
        assert successor.replaces == harness.node
