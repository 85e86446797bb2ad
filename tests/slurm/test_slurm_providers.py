"""The providers that go by Slurm itself, on a real cluster."""

from datetime import UTC, datetime, timedelta

import pytest
from slurm_fleet_at_work import on_both_versions

from holdfast.adapters.providers.settings import ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.apps.clock import SystemClock
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView, Phase
from holdfast.ports.provider import NodeProvider
from tests.engines.slurm_cluster import SlurmCluster
from tests.ports.builders import a_node, a_remediation


@pytest.fixture
def provider(slurm: SlurmCluster, monkeypatch) -> NodeProvider:
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return built()


def built() -> NodeProvider:
    config = ProviderConfig(replace=ProviderName.SLURM_POWER, reboot=ProviderName.SLURM_REBOOT)
    return build_provider(config, SystemClock())


def ordered(slurm: SlurmCluster) -> list[str]:
    path = slurm.folder / "orders"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def node(name: str = "node1", *, phase: Phase = Phase.DRAINING, ago: float = 0.0) -> NodeView:
    since = datetime.now(UTC) - timedelta(seconds=ago)
    return a_node(phase, name=name, record={"remediation": a_remediation(), "phase_since": since})


def until_accepted(slurm: SlurmCluster, provider: NodeProvider, view: NodeView, token: str) -> None:
    def is_accepted() -> bool:
        try:
            provider.replace(view, token)
        except RetryLater:
            return False
        return True

    slurm.until(is_accepted)


def test_a_node_is_switched_off_and_on_once_for_an_order(slurm: SlurmCluster, provider) -> None:
    machine = (slurm.machines["node1"].root / "etc/machine-id").read_text()

    until_accepted(slurm, provider, node(), "i/1")
    slurm.until(lambda: slurm.state("node1") == {"IDLE"})
    provider.replace(node(), "i/1")

    assert ordered(slurm) == ["suspend", "node1", "resume", "node1"]
    assert (slurm.machines["node1"].root / "etc/machine-id").read_text() != machine


def test_an_order_that_the_next_controller_repeats_is_not_carried_out_again(
    slurm: SlurmCluster, provider
) -> None:
    began = datetime.now(UTC)
    until_accepted(slurm, provider, node(), "i/1")
    slurm.until(lambda: slurm.state("node1") == {"IDLE"})

    ago = (datetime.now(UTC) - began).total_seconds() + 1
    built().replace(node(phase=Phase.REPLACING, ago=ago), "i/1")

    assert ordered(slurm) == ["suspend", "node1", "resume", "node1"]


@on_both_versions
def test_a_reboot_is_ordered_once(slurm: SlurmCluster, provider) -> None:
    slurm.carries_out = False
    provider.reboot(node(), "i/1")
    slurm.until(lambda: ordered(slurm))

    built().reboot(node(phase=Phase.REBOOTING), "i/1")

    slurm.carries_out = True
    slurm.until(lambda: slurm.state("node1") == {"DOWN"})  # until it is released
    built().reboot(node(phase=Phase.REBOOTING, ago=60), "i/1")
    assert ordered(slurm) == ["reboot", "node1"]


def test_a_later_order_is_carried_out_though_the_node_has_booted_before(
    slurm: SlurmCluster, provider
) -> None:
    before = slurm.node("node1")["BootTime"]
    slurm.machines["node1"].reboot()
    slurm.until(lambda: slurm.node("node1")["BootTime"] not in (before, "None"))

    provider.reboot(node(ago=3600), "i/2")

    slurm.until(lambda: ordered(slurm) == ["reboot", "node1"])


def test_a_node_that_slurm_does_not_know_is_gone(provider) -> None:
    with pytest.raises(NodeGone):
        provider.reboot(node("nobody"), "i/1")


def test_slurmctld_being_away_holds_all_orders_together(slurm: SlurmCluster, provider) -> None:
    slurm.crash_controller()

    with pytest.raises(RetryLater, match="Unable to contact slurm controller"):
        provider.reboot(node(), "i/1")

    slurm.start_controller()
    with pytest.raises(RetryLater):  # at once, without asking
        provider.reboot(node("node2"), "i/2")


def test_power_saving_that_is_off_is_reported(programs, monkeypatch) -> None:
    with SlurmCluster(programs, nodes=("node1",), settings={"SuspendTime": "INFINITE"}) as slurm:
        monkeypatch.setenv("PATH", slurm.environment["PATH"])
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        # 26.05 powers a node down whose SuspendTime is INFINITE.
        refused = "power_down_force" if programs.version < "25" else "is powering node1 down"
        with pytest.raises(ProviderError, match=refused):
            built().replace(node(), "i/1")
