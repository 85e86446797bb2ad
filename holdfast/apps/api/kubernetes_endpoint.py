"""Settings of the Kubernetes cluster that clients of EKS connect to."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.model.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesEndpoint:
    """Kubernetes API server, as clients reach it."""

    endpoint: str
    """URL of the API server: ``https://HOST[:PORT]``."""

    certificate_authority: Path
    """PEM file with the certificates that clients trust, without a private key."""

    def __post_init__(self) -> None:
        url = urlsplit(self.endpoint)
        if url.scheme != "https" or not url.hostname or url.query or url.username:
            raise ValueError(f"endpoint must be a URL https://HOST[:PORT], got {self.endpoint!r}")

    def read_authority(self) -> str:
        """Certificates of the authority.

        Raises:
            ConfigError: the file cannot be read, or is no PEM file of certificates alone.

        """
        key = f"kubernetes.certificate_authority: {self.certificate_authority}"
        try:
            text = self.certificate_authority.read_text(encoding="ascii")
        except OSError as error:
            raise ConfigError(f"{key}: cannot be read: {error.strerror}") from error
        except ValueError:
            text = ""
        if "PRIVATE KEY" in text or not _has_certificates(text):
            raise ConfigError(f"{key}: expected a PEM file with certificates and without a key")
        return text


def _has_certificates(text: str) -> bool:
    try:
        ssl.create_default_context(cadata=text or " ")
    except (ssl.SSLError, ValueError):
        return False
    return True
