"""Login to the console through an OpenID Connect provider, with Authlib.

The authorization code flow with PKCE, a state that is bound to the browser, and a nonce.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.api.audit import AuditedRequest, AuditTrail
from holdfast.api.console import set_session_cookie
from holdfast.api.console_files import HEADERS
from holdfast.api.console_sessions import OIDC, Sessions
from holdfast.api.oidc_settings import CALLBACK, OidcSettings
from holdfast.api.problems import AccessDenied
from holdfast.model.errors import BackendError, HoldfastError

LOGIN: Final = "/console/oidc/login"

_STATE_S: Final = 600
"""Seconds in which a person must log in at the provider."""

_TIMEOUT_S: Final = 10.0
_TEXT_LIMIT: Final = 128
_ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Signatures with a key that only the provider has; neither ``none`` nor a shared secret."""


class LoginFailed(HoldfastError):
    """The provider or the browser did not complete the login."""


class OidcLogin:
    """Begins and completes logins."""

    def __init__(self, settings: OidcSettings, sessions: Sessions, audit: AuditTrail) -> None:
        self._settings = settings
        self._sessions = sessions
        self._audit = audit
        issuer = settings.issuer.removesuffix("/")
        self._client: Any = OAuth().register(
            name="console",
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(settings.scopes),
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
            },
        )

    def routes(self) -> list[Route]:
        """URL patterns. The state of a login is in a signed cookie of its own."""
        state = Middleware(
            SessionMiddleware,
            secret_key=secrets.token_urlsafe(32),
            session_cookie="holdfast_oidc",
            max_age=_STATE_S,
            path="/console/oidc",
            same_site="lax",  # the provider sends the browser back
            https_only=self._settings.is_secure,
        )
        return [
            Route(LOGIN, self._begin, middleware=[state]),
            Route(CALLBACK, self._complete, middleware=[state]),
        ]

    async def _begin(self, request: Request) -> Response:
        try:
            await self._metadata()
            answer: Response = await self._client.authorize_redirect(
                request, self._settings.redirect_url
            )
        except (BackendError, *_ERRORS) as error:
            return _problem(503, str(error))
        answer.headers.update(HEADERS)
        return answer

    async def _complete(self, request: Request) -> Response:
        address = request.client.host if request.client else ""
        audited = AuditedRequest(via="console", address=address, operation="LogIn")
        try:
            with self._audit.change(audited):
                claims = await self._claims(request)
                subject, person, groups = _member(claims, self._settings)
                audited.request = {"issuer": self._settings.issuer, "sub": subject}
                cookie, session = await run_in_threadpool(
                    self._sessions.admit, f"{OIDC}{subject}", person, groups
                )
                audited.is_from(session.principal)
        except BackendError as error:
            return _problem(503, str(error))
        except HoldfastError as error:
            return _problem(403 if isinstance(error, AccessDenied) else 401, str(error))
        answer = RedirectResponse("/", status_code=303, headers=HEADERS)
        set_session_cookie(answer, cookie, is_secure=self._settings.is_secure)
        return answer

    async def _claims(self, request: Request) -> Mapping[str, Any]:
        """Claims of a valid ID token.

        Raises:
            LoginFailed: the answer of the provider, its state or its ID token is not valid.
            BackendError: the provider does not answer.

        """
        options = {
            "iss": {"essential": True, "value": await self._metadata()},
            "aud": {"essential": True, "value": self._settings.client_id},
        }
        try:
            token = await self._client.authorize_access_token(request, claims_options=options)
        except (AuthlibBaseError, JoseError) as error:
            raise LoginFailed(f"login at {self._settings.issuer} failed: {error}") from error
        except _ERRORS as error:
            raise self._unavailable(error) from error
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping):
            raise LoginFailed(f"{self._settings.issuer} sent no ID token")
        return claims

    async def _metadata(self) -> str:
        """Read the metadata of the provider once; returns its issuer.

        Raises:
            BackendError: it cannot be read, or is that of another issuer.

        """
        try:
            metadata = await self._client.load_server_metadata()
        except (AuthlibBaseError, *_ERRORS) as error:
            raise self._unavailable(error) from error
        issuer = metadata.get("issuer")
        if issuer != self._settings.issuer:
            raise BackendError(
                f"oidc.issuer is {self._settings.issuer}, and the provider is {issuer!r}; use "
                "exactly the issuer of the provider"
            )
        offered = metadata.get("id_token_signing_alg_values_supported") or ("RS256",)
        usable = sorted(_ALGORITHMS.intersection(offered))
        metadata["id_token_signing_alg_values_supported"] = usable
        return str(issuer)

    def _unavailable(self, error: Exception) -> BackendError:
        why = str(error) or type(error).__name__
        return BackendError(f"{self._settings.issuer} cannot be used for logins: {why}")


_ERRORS: Final = (httpx2.HTTPError, ValueError, KeyError, TypeError, RuntimeError)
"""Errors of the connection, and of an answer in another format."""


def _member(claims: Mapping[str, Any], settings: OidcSettings) -> tuple[str, str, list[str]]:
    """Subject, name and groups with a role of a person.

    Raises:
        LoginFailed: the ID token lacks one of them.

    """
    subject, person = claims.get("sub"), claims.get(settings.name_claim)
    for name, value in (("sub", subject), (settings.name_claim, person)):
        is_name = isinstance(value, str) and 0 < len(value) <= _TEXT_LIMIT and value.isprintable()
        if not is_name:
            raise LoginFailed(
                f"the ID token has no usable claim {name}; set oidc.name_claim and oidc.scopes to "
                "what the provider sends"
            )
    if settings.name_claim == "email" and claims.get("email_verified") is False:
        raise LoginFailed(f"the address {person} is not verified at {settings.issuer}")
    groups = claims.get(settings.groups_claim, ())
    listed = [groups] if isinstance(groups, str) else groups
    if not isinstance(listed, list | tuple):
        listed = ()
    return str(subject), str(person), [one for one in settings.groups if one in listed]


def _problem(status: int, message: str) -> Response:
    text = f"Not logged in: {message}\n"
    return PlainTextResponse(text, status_code=status, headers=HEADERS)
