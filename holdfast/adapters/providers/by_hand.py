"""No provider: operators repair nodes manually."""

from holdfast.model.errors import ProviderError
from holdfast.model.nodes import NodeView


class ByHand:
    """Refuses every order, with manual instructions."""

    def __init__(self, replaces_by: str) -> None:
        """Create the provider; ``replaces_by`` names the provider of replacements, if any."""
        self._replaces_by = replaces_by

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Raise ``ProviderError`` with instructions to reboot the node."""
        able = f'"{self._replaces_by}" cannot reboot machines' if self._replaces_by else ""
        raise ProviderError(
            f"{able or 'no provider is configured'}: reboot {_shown(node)} by hand, or set"
            ' provider.reboot, for example to "ec2"'
        )

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Raise ``ProviderError`` with instructions to replace the node."""
        raise ProviderError(
            f"no provider is configured: replace {_shown(node)} by hand, or set provider.replace,"
            ' for example to "ec2-autoscaling"'
        )


def _shown(node: NodeView) -> str:
    return f"{node.name} ({node.provider_id})" if node.provider_id else node.name
