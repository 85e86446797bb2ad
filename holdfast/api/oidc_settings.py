"""Settings of the console's login through an OpenID Connect provider."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.api.identity import Grant

CALLBACK = "/console/oidc/callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """OpenID Connect provider, and the permissions of its groups."""

    issuer: str
    """URL of the issuer; ``/.well-known/openid-configuration`` is read below it."""

    client_id: str
    client_secret: str = field(repr=False)
    console_url: str
    """URL of the console as browsers see it, such as ``https://holdfast.example.org``. Register
    the redirect URL ``CONSOLE_URL/console/oidc/callback`` at the provider."""

    groups: dict[str, Grant]
    """``group -> permissions``. A person in several groups has those with the highest role, of
    equal roles the first ones; a person in none cannot log in."""

    groups_claim: str = "groups"
    """Claim of the ID token with the groups: a list of texts, or one text."""

    name_claim: str = "email"
    """Claim of the ID token with the name that is recorded as requester. People must not be able to
    choose it themselves; an ``email`` must not be unverified."""

    scopes: tuple[str, ...] = ("openid", "email", "profile")
    """Requested scopes. Some providers need another one for the groups."""

    def __post_init__(self) -> None:
        for name in ("issuer", "console_url"):
            if not _is_private(getattr(self, name)):
                raise ValueError(
                    f"{name} must be an https URL (http only on this machine), got "
                    f"{getattr(self, name)!r}"
                )
        parts = urlsplit(self.console_url)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(f"console_url must have no path, got {self.console_url!r}")
        if not self.groups:
            raise ValueError("groups is empty, so nobody could log in; give a group a role")
        if "openid" not in self.scopes:
            raise ValueError("scopes must contain openid")
        for name in ("client_id", "client_secret", "groups_claim", "name_claim"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")

    @property
    def redirect_url(self) -> str:
        """URL to which the provider returns browsers."""
        return self.console_url.removesuffix("/") + CALLBACK

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the console over TLS."""
        return self.console_url.startswith("https://")


def _is_private(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    is_local = host in ("localhost", "127.0.0.1", "::1")
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_local))
