"""Location of the copies of a checkpoint directory below the location of a server. Pure."""

import hashlib
import re
from typing import Final

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LABEL_LIMIT: Final = 60
_DIGEST: Final = 16
"""Hexadecimal digits that distinguish directories with the same label."""


def mirror_location(base: str, cluster: str, folder: str) -> str:
    """Return the location of the copies of one checkpoint directory of a cluster.

    Clusters with the same name have different IDs, and different directories have different
    locations, so that no job gets the copies of another.

    Args:
        base: directory or URL that a person configured.
        cluster: ID of the cluster.
        folder: absolute path of the checkpoint directory.

    """
    digest = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()
    label = _OTHER.sub("_", "-".join(folder.split("/")[-2:]))[-_LABEL_LIMIT:].lstrip(".-_")
    return f"{base.rstrip('/')}/{cluster}/{label or 'checkpoints'}-{digest[:_DIGEST]}"
