"""Images to which a software update is rolled back: those that the nodes had before it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.model.clusters import GroupMachine, MachineGroup, SoftwareUpdate


def images_of(machines: Sequence[GroupMachine]) -> Mapping[str, int]:
    """Return the number of machines by their image, without those whose image is unknown."""
    return Counter(one.image for one in machines if one.image)


def missing_images(update: SoftwareUpdate, remaining: Sequence[GroupMachine]) -> Mapping[str, int]:
    """Return the number of nodes by the image that they lost to an update, the largest first.

    Args:
        update: software update.
        remaining: machines that do not leave and whose software is not that of the update.

    """
    missing = Counter(update.images)
    missing.subtract(images_of(remaining))
    return {
        image: count
        for image, count in sorted(missing.items(), key=lambda one: (-one[1], one[0]))
        if count > 0
    }


def restoring(made_of: MachineGroup, missing: Mapping[str, int]) -> MachineGroup:
    """Return a specification whose new machines boot the first of the missing images, if any."""
    image = next(iter(missing), made_of.previous_image)
    return replace(made_of, previous_image="" if image == made_of.image else image)


def restored(made_of: MachineGroup, update: SoftwareUpdate) -> MachineGroup:
    """Return the specification after a rollback.

    New machines boot the image that it names or, without one, the one that most nodes had.
    """
    if made_of.image:
        return replace(made_of, previous_image="")
    return restoring(made_of, missing_images(update, ()))
