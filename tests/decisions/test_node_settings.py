"""Requested labels and taints reach the nodes, and those of others are never touched."""

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.node_settings import is_applied, observed, planned, shared
from holdfast.model.node_settings import KubernetesConfig, NodeSettings, Taint
from tests.ports.fake_kubernetes_nodes import FakeKubernetesNodes

NONE = KubernetesConfig()
MACHINE = "i-1"

keys = st.sampled_from(["a", "b", "x.com/c"])
values = st.sampled_from(["1", "2"])
effects = st.sampled_from(["NoSchedule", "NoExecute"])
taints = st.dictionaries(st.tuples(keys, effects), st.sampled_from(["", "1", "2"]), max_size=4)
configs = st.builds(
    lambda labels, taints: KubernetesConfig(
        labels=labels,
        taints=tuple(
            Taint(key=key, effect=effect, value=value)
            for (key, effect), value in sorted(taints.items())
        ),
    ),
    st.dictionaries(keys, values),
    taints,
)


def entries(config: KubernetesConfig) -> dict[tuple[str, str], str]:
    labels = {(key, ""): value for key, value in config.labels.items()}
    return labels | {(one.key, one.effect): one.value for one in config.taints}


class World:
    """A node, its record, and a loop that may die after it has recorded."""

    def __init__(self, foreign: KubernetesConfig) -> None:
        self.nodes = FakeKubernetesNodes(nodes={MACHINE: foreign})
        self.settings = NodeSettings()

    @property
    def node(self) -> dict[tuple[str, str], str]:
        return entries(self.nodes.nodes[MACHINE])

    def step(self, desired: KubernetesConfig, *, dies: bool = False) -> None:
        seen = self.nodes.settings()[MACHINE]
        self.settings = observed(self.settings, desired, seen)
        self.settings, change = planned(MACHINE, self.settings, desired)
        assert not is_applied(self.settings, desired) or change is None
        if change is not None and not dies:
            self.nodes.configure([change])


rounds = st.lists(st.tuples(configs, st.booleans()), max_size=6)


@given(foreign=configs, rounds=rounds, last=configs)
@settings(max_examples=examples(400))
def test_a_node_has_what_is_requested_and_what_others_have_set(foreign, rounds, last) -> None:
    world = World(foreign)
    others = entries(foreign)
    for desired, dies in rounds:
        world.step(desired, dies=dies)
        assert others.items() <= world.node.items()
    for _ in range(2):
        world.step(last)

    assert world.node == {**entries(last), **others}
    world.step(last)
    taken = {one for one, value in entries(last).items() if others.get(one, value) != value}
    assert bool(world.settings.conflict) == bool(taken)
    assert is_applied(world.settings, last) == (not taken)
    for key, effect in taken:
        assert f"{key}:{effect}" in world.settings.conflict or f"label {key} is" in (
            world.settings.conflict
        )


@given(foreign=configs, rounds=rounds)
@settings(max_examples=examples(200))
def test_nothing_is_left_once_nothing_is_requested(foreign, rounds) -> None:
    world = World(foreign)
    for desired, dies in rounds:
        world.step(desired, dies=dies)
    for _ in range(2):
        world.step(NONE)

    assert world.node == entries(foreign)
    assert world.settings == NodeSettings()


def test_a_changed_value_of_an_owned_label_is_restored() -> None:
    world = World(NONE)
    desired = KubernetesConfig(labels={"a": "1"})
    world.step(desired)
    world.nodes.nodes[MACHINE] = KubernetesConfig(labels={"a": "2"})
    world.step(desired)

    assert world.node == {("a", ""): "1"}


def test_current_settings_of_a_group_are_those_of_all_its_nodes() -> None:
    one = KubernetesConfig(labels={"a": "1", "b": "1"})
    other = KubernetesConfig(labels={"a": "1", "b": "2"})

    assert shared([one, other]).labels == {"a": "1"}
    assert shared([]) == NONE
