"""Port of the manifests of a checkpoint directory."""

from typing import Protocol

from holdfast.model.checkpoint_manifests import CheckpointManifest, SaveSummary


class ManifestStore(Protocol):
    """Manifests of the checkpoints of one directory, by name of the checkpoint."""

    def read(self, name: str) -> CheckpointManifest | None:
        """Return the manifest of a checkpoint; None if there is none or it is not valid."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of the checkpoints with a manifest."""
        ...

    def write(self, manifest: CheckpointManifest) -> None:
        """Replace the manifest of a checkpoint durably.

        Raises:
            BackendError: it cannot be written.

        """
        ...

    def delete(self, name: str) -> None:
        """Delete the manifest of a checkpoint; no error if there is none.

        Raises:
            BackendError: it cannot be deleted.

        """
        ...

    def read_summary(self) -> SaveSummary | None:
        """Return the summary of the directory; None if there is none or it is not valid."""
        ...

    def write_summary(self, summary: SaveSummary) -> None:
        """Replace the summary of the directory durably.

        Raises:
            BackendError: it cannot be written.

        """
        ...
