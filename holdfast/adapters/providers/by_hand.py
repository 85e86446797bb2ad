"""No provider: people carry out the repairs."""

from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView


class ByHand:
    """Refuses every order, with what to do."""

    def __init__(self, replaces_by: str) -> None:
        """Refuse where ``replaces_by`` names the provider of replacements."""
        self._replaces_by = replaces_by

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Say who has to reboot the node."""
        able = f'"{self._replaces_by}" cannot reboot machines' if self._replaces_by else ""
        raise ProviderError(
            f"{able or 'no provider is configured'}: reboot {_shown(node)} by hand, or set"
            ' provider.reboot, for example to "ec2"'
        )

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Say who has to replace the node."""
        raise ProviderError(
            f"no provider is configured: replace {_shown(node)} by hand, or set provider.replace,"
            ' for example to "ec2-autoscaling"'
        )


def _shown(node: NodeView) -> str:
    return f"{node.name} ({node.provider_id})" if node.provider_id else node.name
