"""Contract of ``NodeProvider``, as test classes for pytest that a provider's tests inherit from.

A class inherits from the contracts of what its provider can do, and has a fixture ``harness``.
``holdfast.testing`` is stable like the names of ``holdfast``; it is for tests only.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.ports.provider import NodeProvider

__all__ = [
    "DurableProviderHarness",
    "DurableRebootContract",
    "DurableReplaceContract",
    "IdentityContract",
    "IdentityHarness",
    "ProviderContract",
    "ProviderHarness",
    "RebootContract",
    "RebootedIdentityContract",
    "ReplaceContract",
    "ReplacedIdentityContract",
    "node_view",
]

_BOOTED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def node_view(
    name: str,
    provider_id: str,
    *,
    boot_id: str = "",
    addresses: Iterable[str] = (),
    replaces: str = "",
) -> NodeView:
    """Return a node as a provider gets it, with a record of a node that accepts jobs."""
    return NodeView(
        name=name,
        provider_id=provider_id,
        record=NodeRecord(phase=Phase.SCHEDULABLE, phase_since=_BOOTED_AT),
        boot_id=boot_id,
        addresses=tuple(addresses),
        replaces=replaces,
    )


class ProviderHarness(Protocol):
    """A cluster of one node that has booted, and the owner of its machine."""

    provider: NodeProvider
    node: str
    """Name of the node."""

    def nodes(self) -> Iterable[NodeView]:
        """Return the node as it is now, and each node that replaces one."""
        ...

    def settle(self) -> None:
        """Let all orders take effect."""
        ...


class IdentityHarness(ProviderHarness, Protocol):
    """A harness whose owner of machines has another machine beside that of the node."""

    def misled(self) -> NodeView:
        """Return the node with the provider ID of the other machine, and its own addresses."""
        ...

    def is_untouched(self) -> bool:
        """Return whether the other machine got no order."""
        ...


class DurableProviderHarness(ProviderHarness, Protocol):
    """A harness whose owner of machines outlives the process of the provider."""

    def reopened(self) -> NodeProvider:
        """Return a new provider of the same owner, as a restarted controller creates it."""
        ...


def _node(harness: ProviderHarness) -> NodeView:
    return next(one for one in harness.nodes() if one.name == harness.node)


class ReplacedIdentityContract:
    """Contract of ``replace`` for a node with the provider ID of another machine."""

    def test_no_machine_of_somebody_else_is_replaced(self, harness: IdentityHarness) -> None:
        with suppress(ProviderError):
            harness.provider.replace(harness.misled(), "incident/1")
        harness.settle()

        assert harness.is_untouched()


class RebootedIdentityContract:
    """Contract of ``reboot`` for a node with the provider ID of another machine."""

    def test_no_machine_of_somebody_else_is_rebooted(self, harness: IdentityHarness) -> None:
        with suppress(ProviderError):
            harness.provider.reboot(harness.misled(), "incident/1")
        harness.settle()

        assert harness.is_untouched()


class IdentityContract(ReplacedIdentityContract, RebootedIdentityContract):
    """Contract of both orders for a node with the provider ID of another machine."""


class RebootContract:
    """Contract of ``reboot``."""

    def test_a_reboot_gives_another_boot_of_the_same_machine(
        self, harness: ProviderHarness
    ) -> None:
        before = _node(harness)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        after = _node(harness)
        assert after.provider_id == before.provider_id
        assert after.boot_id != before.boot_id

    def test_an_order_acts_once_however_often_it_is_given(self, harness: ProviderHarness) -> None:
        before = _node(harness)
        harness.provider.reboot(before, "incident/1")
        harness.settle()
        once = _node(harness)

        harness.provider.reboot(before, "incident/1")
        harness.settle()

        assert _node(harness).boot_id == once.boot_id


class DurableRebootContract:
    """Contract of ``reboot`` across restarts of the controller."""

    def test_a_reboot_repeated_by_the_next_controller_gives_no_second_boot(
        self, harness: DurableProviderHarness
    ) -> None:
        before = _node(harness)
        harness.provider.reboot(before, "incident/1")  # and its answer is lost
        harness.settle()
        once = _node(harness)
        assert once.boot_id != before.boot_id

        harness.reopened().reboot(before, "incident/1")
        harness.settle()
        assert _node(harness).boot_id == once.boot_id

        harness.reopened().reboot(once, "incident/2")
        harness.settle()
        assert _node(harness).boot_id != once.boot_id


class ReplaceContract:
    """Contract of ``replace``."""

    def test_a_node_has_one_replacement_however_many_are_ordered(
        self, harness: ProviderHarness
    ) -> None:
        before = _node(harness)

        for token in ("incident/1", "incident/1", "incident/2"):
            harness.provider.replace(before, token)
            harness.settle()

        (successor,) = [one for one in harness.nodes() if one.replaces]
        assert successor.replaces == harness.node
        assert successor.provider_id != before.provider_id


class ProviderContract(RebootContract, ReplaceContract):
    """Contract of ``reboot`` and ``replace``."""


class DurableReplaceContract:
    """Contract of ``replace`` across restarts of the controller."""

    def test_an_order_repeated_by_the_next_controller_gives_no_second_replacement(
        self, harness: DurableProviderHarness
    ) -> None:
        before = _node(harness)
        harness.provider.replace(before, "incident/1")  # and its answer is lost

        harness.reopened().replace(before, "incident/1")
        harness.settle()
        harness.reopened().replace(before, "incident/1")
        harness.settle()

        (successor,) = [one for one in harness.nodes() if one.replaces]
        assert successor.replaces == harness.node
