"""Port of the images that machines boot."""

from typing import Protocol

from holdfast.model.clusters import MachineGroup


class MachineImages(Protocol):
    """Images of the provider of machines."""

    def newest_image(self, group: MachineGroup) -> str:
        """Return the image that new machines of a group would boot if it named none.

        Empty if the provider knows none. May raise ``BackendError``.
        """
        ...
