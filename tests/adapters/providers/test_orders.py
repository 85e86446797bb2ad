import subprocess
import sys
from datetime import timedelta

import pytest

from holdfast.adapters.providers import table
from holdfast.adapters.providers.orders import Orders, OwnerUnreachable
from holdfast.adapters.providers.settings import CommandSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import ROWS, build_provider
from holdfast.model.errors import ConfigError, ProviderError, RetryLater
from holdfast.model.nodes import NodeView
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

NODE = a_node()
PAUSE = timedelta(seconds=30)


class Owner:
    """Takes orders, unless it is told to fail; a failed connection takes some time to show."""

    def __init__(self, clock: FakeClock, takes: timedelta = timedelta(0)) -> None:
        self.orders: list[str] = []
        self.failing: ProviderError | None = None
        self._clock = clock
        self._takes = takes

    def __call__(self, node: NodeView, token: str) -> None:
        self.orders.append(f"{node.name} {token}")
        if self.failing is not None:
            self._clock.time += self._takes
            raise self.failing


class World:
    def __init__(self, takes: timedelta = timedelta(0)) -> None:
        self.clock = FakeClock()
        self.rebooter = Owner(self.clock, takes)
        self.replacer = Owner(self.clock, takes)
        self.orders = Orders(reboot=self.rebooter, replace=self.replacer, clock=self.clock)


def test_each_order_goes_to_who_carries_it_out() -> None:
    world = World()

    world.orders.reboot(NODE, "t/1")
    world.orders.replace(NODE, "t/2")

    assert (world.rebooter.orders, world.replacer.orders) == (["node-1 t/1"], ["node-1 t/2"])


def test_an_accepted_order_is_given_once() -> None:
    world = World()

    for token in ("t/1", "t/2", "t/1", "t/2"):
        world.orders.replace(NODE, token)

    assert world.replacer.orders == ["node-1 t/1", "node-1 t/2"]


@pytest.mark.parametrize("error", [ProviderError("no"), RetryLater("later", after=PAUSE)])
def test_a_refused_order_is_given_again_and_others_with_it(error: ProviderError) -> None:
    world = World()
    world.replacer.failing = error

    for token in ("t/1", "u/1", "t/1"):
        with pytest.raises(ProviderError) as caught:
            world.orders.replace(NODE, token)
        assert caught.value is error

    world.replacer.failing = None
    world.orders.replace(NODE, "t/1")
    assert world.replacer.orders == [f"node-1 {one}" for one in ("t/1", "u/1", "t/1", "t/1")]


def test_while_an_owner_is_away_no_order_is_tried() -> None:
    world = World(takes=timedelta(seconds=20))
    world.replacer.failing = OwnerUnreachable("the cloud does not answer", after=PAUSE)

    with pytest.raises(RetryLater):
        world.orders.replace(NODE, "t/1")
    world.clock.time += PAUSE - timedelta(microseconds=1)
    with pytest.raises(RetryLater, match="the cloud does not answer") as caught:
        world.orders.replace(NODE, "u/1")

    assert world.replacer.orders == ["node-1 t/1"]
    assert caught.value.after == timedelta(microseconds=1)


def test_afterwards_orders_are_tried_again() -> None:
    world = World(takes=timedelta(seconds=20))
    world.replacer.failing = OwnerUnreachable("away", after=PAUSE)
    with pytest.raises(RetryLater):
        world.orders.replace(NODE, "t/1")
    world.replacer.failing = None

    world.clock.time += PAUSE
    world.orders.replace(NODE, "t/1")
    world.orders.replace(NODE, "u/1")

    assert world.replacer.orders == ["node-1 t/1", "node-1 t/1", "node-1 u/1"]


def test_a_pause_of_a_clock_that_was_ahead_delays_no_order() -> None:
    world = World()
    world.clock.time += timedelta(hours=3)
    world.replacer.failing = OwnerUnreachable("away", after=PAUSE)
    with pytest.raises(RetryLater):
        world.orders.replace(NODE, "t/1")
    world.replacer.failing = None

    world.clock.time -= timedelta(hours=3)
    world.orders.replace(NODE, "t/1")

    assert world.replacer.orders == ["node-1 t/1", "node-1 t/1"]


def test_an_order_taken_before_is_no_error_while_its_owner_is_away() -> None:
    world = World()
    world.orders.replace(NODE, "t/1")
    world.replacer.failing = OwnerUnreachable("away", after=PAUSE)
    with pytest.raises(RetryLater):
        world.orders.replace(NODE, "u/1")

    world.orders.replace(NODE, "t/1")


def test_an_owner_that_is_away_holds_up_no_other() -> None:
    world = World()
    world.replacer.failing = OwnerUnreachable("away", after=PAUSE)
    with pytest.raises(RetryLater):
        world.orders.replace(NODE, "t/1")

    world.orders.reboot(NODE, "u/1")

    assert world.rebooter.orders == ["node-1 u/1"]


def test_what_is_remembered_is_bounded_and_the_newest_stay() -> None:
    world = World()
    tokens = [f"t/{number}" for number in range(4097)]
    for token in tokens:
        world.orders.replace(NODE, token)
    given = len(world.replacer.orders)

    for token in tokens[1:]:
        world.orders.replace(NODE, token)
    assert len(world.replacer.orders) == given

    world.orders.replace(NODE, tokens[0])
    assert len(world.replacer.orders) == given + 1


def test_without_a_provider_orders_say_what_to_do_by_hand() -> None:
    provider = build_provider(ProviderConfig(), FakeClock())

    with pytest.raises(ProviderError, match=r"no provider is configured: replace node-1 \(i-1\)"):
        provider.replace(NODE, "t/1")
    with pytest.raises(ProviderError, match=r"no provider .* set provider.reboot") as caught:
        provider.reboot(a_node(provider_id=""), "t/1")
    assert "reboot node-1 by hand" in str(caught.value)


def test_what_replaces_does_not_reboot_where_that_is_left_to_people() -> None:
    config = ProviderConfig(
        replace=ProviderName.COMMAND,
        reboot=ProviderName.NONE,
        command=CommandSettings(replace=("true",)),
    )
    provider = build_provider(config, FakeClock())

    provider.replace(NODE, "t/1")
    with pytest.raises(ProviderError, match=r"reboot node-1 .* by hand"):
        provider.reboot(NODE, "t/2")


@pytest.mark.parametrize("name", ROWS)
def test_an_sdk_is_loaded_when_it_is_chosen_and_not_before(name: ProviderName) -> None:
    row = ROWS[name]
    script = f"""
import sys
import holdfast.adapters.providers.settings
import holdfast.adapters.providers.table
assert not {{"boto3", "botocore", "yaml", "http.client"}} & set(sys.modules)
import holdfast.adapters.providers.{name.key}
print(",".join(sorted({{"boto3", "yaml"}} & set(sys.modules))))
"""
    shown = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, encoding="utf-8"
    )

    assert shown.stdout.strip() == {"aws": "boto3", "": ""}[row.extra]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.needs_cluster])
def test_what_kubernetes_provisions_is_only_for_nodes_of_kubernetes(name: ProviderName) -> None:
    with pytest.raises(ConfigError, match=f'provider: "{name}" supports only Kubernetes nodes'):
        build_provider(ProviderConfig(replace=name), FakeClock())


def test_a_missing_package_is_reported_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "holdfast.adapters.providers.aws_calls", raising=False)
    monkeypatch.delitem(sys.modules, "holdfast.adapters.providers.ec2", raising=False)
    config = ProviderConfig(replace=ProviderName.EC2)

    with pytest.raises(ConfigError) as caught:
        table.build_provider(config, FakeClock())

    assert str(caught.value) == (
        'provider: "ec2" needs the Python package boto3; install it with'
        " pip install 'holdfast[aws]'"
    )
