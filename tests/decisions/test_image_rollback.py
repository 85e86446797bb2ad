"""Rollbacks of software updates: each node gets the image back that it had before."""

from collections import Counter
from dataclasses import replace

from created_world import MINUTE, OVER, World
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decisions.software_update import started
from holdfast.model.clusters import GroupStage
from holdfast.model.deployments import BatchSize, Deployment
from holdfast.model.sagemaker import ClusterStatus, UpdateStatus

KEY = "lab/a"
NEW = "ami-new"
IMAGES = ("ami-1", "ami-2", "ami-3")
Deaths = list[tuple[int, bool]]


class ImagedWorld(World):
    """A group whose nodes have booted different images, and whose default image is another now."""

    def __init__(self, images: list[str], named: str) -> None:
        super().__init__({"a": len(images)}, is_continuous=False)
        self.settle()
        self.owner.members[KEY] = [
            replace(one, image=image)
            for one, image in zip(self.owner.members[KEY], images, strict=True)
        ]
        self.make(replace(self.cluster.groups[0].made_of, image=named))
        self.owner.image = NEW

    def make(self, made_of) -> None:
        [group] = self.cluster.groups
        self.change(groups=(replace(group, made_of=made_of, stage=GroupStage.NEW),))
        self.settle()

    def images(self) -> Counter[str]:
        return Counter(one.image for one in self.owner.members[KEY])

    def update(self, deployment: Deployment, image: str = "") -> None:
        [group] = self.cluster.groups
        begun = started(group, self.members, deployment, self.clock.now(), image=image)
        self.change(status=ClusterStatus.SYSTEM_UPDATING, groups=(begun,))

    def pass_rounds(self, deaths: Deaths) -> None:
        for acts, boots in deaths:
            if self.cluster.status in OVER:
                return
            self.step(acts=acts)
            if boots:
                self.owner.settle()
            self.clock.time += MINUTE


deaths = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12)


@given(
    images=st.lists(st.sampled_from(IMAGES), min_size=1, max_size=6),
    named=st.sampled_from(["", *IMAGES]),
    image=st.sampled_from(["", "ami-requested"]),
    batch=st.integers(1, 4),
    back=st.integers(1, 4),
    before=st.integers(0, 12),
    remediation=deaths,
)
@settings(max_examples=examples(300))
def test_a_rollback_gives_each_node_its_image_back(
    images, named, image, batch, back, before, remediation
) -> None:
    """Of machines that are absent when it begins, all but one may get that of another node."""
    world = ImagedWorld(images, named)
    old = world.images()
    deployment = Deployment(
        batch=BatchSize(value=batch), rollback_batch=BatchSize(value=back), alarms=("loss",)
    )
    world.update(deployment, image)
    world.pass_rounds([(99, True)] * before)
    was_over = world.cluster.status in OVER
    absent = len(images) - len(world.owner.members[KEY])
    world.alarms = frozenset(["loss"])
    world.pass_rounds([*remediation, *[(99, True)] * 120])

    [group] = world.cluster.groups
    assert world.cluster.status is ClusterStatus.IN_SERVICE
    if was_over:
        assert group.update.status is UpdateStatus.SUCCEEDED
        assert set(world.images()) == {image or named or NEW}
        return
    assert group.update.status is UpdateStatus.ROLLBACK_COMPLETE
    assert sum((old - world.images()).values()) <= max(0, absent - 1)
    assert set(world.images()) <= set(old)
    assert group.made_of.image == named
    boots = group.made_of.previous_image or group.made_of.image
    assert boots == named or old[boots] == max(old.values())


@given(images=st.lists(st.sampled_from(IMAGES), min_size=1, max_size=4))
@settings(max_examples=examples(50))
def test_the_update_after_a_rollback_boots_the_default_image_again(images) -> None:
    world = ImagedWorld(images, "")
    world.update(Deployment(alarms=("loss",)))
    world.pass_rounds([(99, True)] * 3)
    world.alarms = frozenset(["loss"])
    world.pass_rounds([(99, True)] * 120)
    [group] = world.cluster.groups
    assert group.made_of.previous_image in images

    world.alarms = frozenset()
    world.update(Deployment())
    world.pass_rounds([(99, True)] * 60)

    assert set(world.images()) == {NEW}
    assert world.cluster.groups[0].made_of.previous_image == ""
