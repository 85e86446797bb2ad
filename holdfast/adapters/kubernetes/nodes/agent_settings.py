"""Agent settings for Kubernetes: the table ``kubernetes`` of its configuration."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.model.names import LABEL_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKubernetes:
    """Settings for reports to the agent's own Node object; the table may be empty.

    The name of the Node object is ``node``, or the environment variable ``NODE_NAME``.
    """

    namespace: str = "holdfast"
    """Namespace of the agent's lease."""

    label_prefix: str = LABEL_PREFIX
    """Prefix of HyperPod's labels, taint and annotations, without the slash."""

    server: str | None = None
    """Address of the API server, such as ``"https://10.0.0.1:6443"``; that of the pod's service
    account, with its token, if left out."""

    ca_file: Path | None = None
    """Certificate authorities of ``server``; the trust store of the machine if left out."""

    token_file: Path | None = None
    """File with the token for ``server``; it may be replaced at any time."""

    def __post_init__(self) -> None:
        if self.server is None and (self.ca_file or self.token_file):
            raise ValueError("ca_file and token_file require server")
