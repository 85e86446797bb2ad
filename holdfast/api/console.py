"""The web console: pages, data and requests. It records requests and never acts on nodes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.api.audit import AuditedRequest, AuditTrail
from holdfast.api.console_clusters import ClusterViews
from holdfast.api.console_files import HEADERS, one_of, served_file, static_files
from holdfast.api.console_http import (
    Refused,
    answering,
    json_response,
    read_body,
    require_same_origin,
)
from holdfast.api.console_jobs import CANCEL, JobViews
from holdfast.api.console_live import Live
from holdfast.api.console_sessions import LIFETIME, ConsoleSession, Sessions
from holdfast.api.console_source import (
    ConsoleAction,
    ConsoleBackend,
    Json,
    RepairRequest,
    UnknownObject,
)
from holdfast.api.identity import Principal
from holdfast.api.problems import AccessDenied
from holdfast.kit.serial import from_plain
from holdfast.model.errors import BackendError

COOKIE: Final = "holdfast_session"
PROOF: Final = "x-holdfast-proof"
"""Header of requests that change something: ``ConsoleSession.proof``."""

_OPERATION: Final[dict[str, str]] = {
    ConsoleAction.REBOOT: "BatchRebootClusterNodes",
    ConsoleAction.REPLACE: "BatchReplaceClusterNodes",
    ConsoleAction.DEEP_CHECK: "StartClusterHealthCheck",
    ConsoleAction.RELEASE: "ReleaseNode",
    ConsoleAction.HOLD: "HoldNode",
    ConsoleAction.UNHOLD: "UnholdNode",
    ConsoleAction.RESET_BREAKER: "ResetBreaker",
    "cancel-job": CANCEL,
    "read-audit": "ReadAuditLog",
    "list-clusters": "ListClusters",
    "create-cluster": "CreateCluster",
    "update-cluster": "UpdateCluster",
    "update-software": "UpdateClusterSoftware",
    "delete-cluster": "DeleteCluster",
}
"""Operation that the caller must be permitted to use, the same as in the API where there is one."""

_AUDIT_ENTRIES: Final = 1000
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

_View = Callable[[Request, ConsoleSession], Awaitable[Response]]
_Change = Callable[[Request, ConsoleSession, AuditedRequest], Awaitable[Response]]


class Console:
    """Serves the console."""

    def __init__(
        self,
        source: ConsoleBackend,
        sessions: Sessions,
        live: Live,
        audit: AuditTrail,
        clusters: ClusterViews,
        provider_login: str = "",
    ) -> None:
        """Serve a source.

        Args:
            source: data of the pages.
            sessions: sessions of people who have logged in.
            live: changes for open pages.
            audit: audit log.
            clusters: pages of clusters.
            provider_login: path that begins a login at another provider; empty without one.

        """
        self._provider_login = provider_login
        self._source = source
        self._sessions = sessions
        self._live = live
        self._audit = audit
        self._clusters = clusters

    def routes(self) -> list[Route]:
        """URL patterns; ``/`` only for methods other than POST."""
        files, jobs = static_files(), JobViews(self._source)
        return [
            Route("/", partial(served_file, files["index.html"])),
            Route("/console/static/{path:path}", partial(one_of, files)),
            Route("/console/ways", self._sign_in_methods),
            Route("/console/session", answering(self._begin), methods=["POST"]),
            Route("/console/session", self._for_all(self._who), methods=["GET"]),
            Route("/console/session", self._changing(self._end, "LogOut"), methods=["DELETE"]),
            Route("/console/live", self._for_all(self._stream)),
            Route("/console/node", self._for_all(self._node)),
            Route("/console/incident", self._for_all(self._incident)),
            Route("/console/job", self._for_all(jobs.details)),
            Route("/console/checkpoints", self._for_all(jobs.checkpoints)),
            Route("/console/evidence", self._for_all(jobs.evidence)),
            Route("/console/log", self._for_all(jobs.log)),
            Route("/console/log/file", self._for_all(jobs.log_file)),
            Route("/console/jobs/cancel", self._changing(jobs.cancel, CANCEL), methods=["POST"]),
            Route("/console/clusters", self._for_all(self._clusters.listed), methods=["GET"]),
            Route(
                "/console/clusters",
                self._changing(self._clusters.change, "ChangeCluster"),
                methods=["POST"],
            ),
            Route("/console/cluster", self._for_all(self._clusters.details)),
            Route(
                "/console/clusters/scale",
                self._changing(self._clusters.scale, "UpdateCluster"),
                methods=["POST"],
            ),
            Route("/metrics", answering(self._metrics)),
            Route("/console/audit", self._for_all(self._audit_log)),
            Route("/console/trends", self._for_all(self._trends)),
            Route("/console/goodput", self._for_all(self._goodput)),
            Route(
                "/console/repairs",
                self._changing(self._request_repair, "RequestRepair"),
                methods=["POST"],
            ),
        ]

    def _for_all(self, view: _View) -> Callable[[Request], Awaitable[Response]]:
        """View that requires a login."""

        async def answer(request: Request) -> Response:
            return await view(request, await self._session(request))

        return answering(answer)

    def _changing(
        self, change: _Change, operation: str
    ) -> Callable[[Request], Awaitable[Response]]:
        """View that changes something: it requires a login and a page of the same session.

        Args:
            change: the view.
            operation: operation in the audit log, until the request was read.

        """

        async def answer(request: Request) -> Response:
            audited = _audited(request, operation)
            with self._audit.change(audited):
                session = await self._session(request)
                audited.is_from(session.principal)
                self._prove(request, session)
                return await change(request, session, audited)

        return answering(answer)

    async def _session(self, request: Request) -> ConsoleSession:
        session = await self._found(request.cookies.get(COOKIE, ""))
        if session is None:
            raise Refused(401, "log in first")
        return session

    async def _found(self, cookie: str) -> ConsoleSession | None:
        known = self._sessions.known(cookie)
        return known or await run_in_threadpool(self._sessions.find, cookie)

    def _prove(self, request: Request, session: ConsoleSession) -> None:
        """Verify that a page of this console made the request (CSRF protection)."""
        require_same_origin(request)
        if not self._sessions.proves(session, request.headers.get(PROOF, "")):
            raise Refused(403, "the page is outdated; reload it")

    async def _begin(self, request: Request) -> Response:
        audited = _audited(request, "LogIn")
        with self._audit.change(audited):
            require_same_origin(request)
            token = (await read_body(request)).get("token")
            if not isinstance(token, str):
                raise Refused(400, "token: expected a string")
            if not self._sessions.are_possible:
                raise Refused(
                    403, "no key in api.toml has a token; create one with: holdfast api --new-key"
                )
            cookie, session = await run_in_threadpool(self._sessions.begin, token, audited.address)
            audited.is_from(session.principal)
        answer = json_response(_session_json(session))
        set_session_cookie(answer, cookie, is_secure=request.url.scheme == "https")
        return answer

    async def _sign_in_methods(self, _request: Request) -> Response:
        """Ways to log in."""
        sign_in_methods = {"token": self._sessions.are_possible, "provider": self._provider_login}
        return json_response(sign_in_methods)

    async def _who(self, _request: Request, session: ConsoleSession) -> Response:
        return json_response(_session_json(session))

    async def _end(
        self, request: Request, _session: ConsoleSession, _audited: AuditedRequest
    ) -> Response:
        await run_in_threadpool(self._sessions.end, request.cookies[COOKIE])
        answer = Response(status_code=204, headers=HEADERS)
        answer.delete_cookie(COOKIE, path="/console", httponly=True, samesite="strict")
        return answer

    async def _stream(self, request: Request, session: ConsoleSession) -> Response:
        cookie, principal = request.cookies[COOKIE], session.principal

        async def is_authorized() -> bool:
            try:
                return await self._found(cookie) is not None
            except BackendError:  # the page connects again
                return False

        events = self._live.stream(
            request.headers.get("last-event-id", ""),
            is_authorized,
            None if principal.clusters is None else principal.may_use,
        )
        headers = {**HEADERS, "x-accel-buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _node(self, request: Request, session: ConsoleSession) -> Response:
        query = request.query_params
        fleet, name = query.get("fleet", ""), query.get("name", "")
        _permit_fleet(session.principal, fleet, f"node {name} no longer exists")
        return json_response(await run_in_threadpool(self._source.node, fleet, name))

    async def _incident(self, request: Request, session: ConsoleSession) -> Response:
        query = request.query_params
        fleet, name = query.get("fleet", ""), query.get("id", "")
        _permit_fleet(session.principal, fleet, f"there is no incident {name}")
        return json_response(await run_in_threadpool(self._source.incident, fleet, name))

    async def _goodput(self, _request: Request, session: ConsoleSession) -> Response:
        return json_response(
            await run_in_threadpool(self._source.goodput, session.principal.may_use)
        )

    async def _trends(self, request: Request, session: ConsoleSession) -> Response:
        hours = request.query_params.get("hours", "")
        if not (hours.isascii() and hours.isdecimal() and len(hours) <= 4 and int(hours) > 0):
            raise Refused(400, "hours: expected a number from 1 to 9999")
        return json_response(
            await run_in_threadpool(self._source.trends, int(hours), session.principal.may_use)
        )

    async def _metrics(self, request: Request) -> Response:
        """Metrics for the owner of the token in the header ``Authorization``."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Refused(401, "send the console token of a key: Authorization: Bearer TOKEN")
        address = request.client.host if request.client else ""
        principal = self._sessions.identify(token.strip(), address)
        text = await run_in_threadpool(self._source.metrics, principal.may_use)
        return Response(text, media_type=_METRICS, headers=HEADERS)

    async def _audit_log(self, _request: Request, session: ConsoleSession) -> Response:
        principal = session.principal
        principal.permit("ReadAuditLog")
        if principal.clusters is not None:
            raise AccessDenied("the audit log covers all clusters; your key does not")
        entries = await run_in_threadpool(self._audit.recent, _AUDIT_ENTRIES)
        return json_response({"entries": entries})

    async def _request_repair(
        self, request: Request, session: ConsoleSession, audited: AuditedRequest
    ) -> Response:
        principal = session.principal
        content = await read_body(request)
        repair = _repair_request(content)
        audited.operation, audited.request = _OPERATION[repair.act], content
        principal.permit(audited.operation)
        _permit_fleet(principal, repair.fleet, f"fleet {repair.fleet} not found")
        message = await run_in_threadpool(self._source.submit, repair, principal.person)
        return json_response({"message": message}, status=202)


def set_session_cookie(answer: Response, cookie: str, *, is_secure: bool) -> None:
    """Store a session in the browser.

    Args:
        answer: response that begins the session.
        cookie: cookie of the session.
        is_secure: whether the browser may send it over TLS only.

    """
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=int(LIFETIME.total_seconds()),
        path="/console",
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def _audited(request: Request, operation: str) -> AuditedRequest:
    address = request.client.host if request.client else ""
    return AuditedRequest(via="console", address=address, operation=operation)


def _permit_fleet(principal: Principal, fleet: str, message: str) -> None:
    """Hide fleets that a person may not see.

    Raises:
        UnknownObject: the fleet is one of them; the text is ``message``.

    """
    if not principal.may_use(fleet):
        raise UnknownObject(message)


def _session_json(session: ConsoleSession) -> Json:
    return {
        "person": session.principal.person,
        "role": session.principal.role,
        "acts": [act for act, name in _OPERATION.items() if not session.principal.rejection(name)],
        "proof": session.proof,
        "expires_at": session.expires_at.isoformat(),
    }


def _repair_request(content: dict[str, Any]) -> RepairRequest:
    try:
        repair = from_plain(RepairRequest, content)
    except ValueError:
        raise Refused(
            400, f"expected act (one of {', '.join(ConsoleAction)}), fleet, node, why, when_idle"
        ) from None
    if not repair.node and repair.act is not ConsoleAction.RESET_BREAKER:
        raise Refused(400, "node: expected the name of a node")
    return repair
