"""Views of the console on one job: the logs of its ranks, and its cancellation."""

import re
from collections.abc import Iterator
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.api.audit import AuditedRequest
from holdfast.api.console_files import HEADERS
from holdfast.api.console_http import Refused, json_response, read_body
from holdfast.api.console_sessions import ConsoleSession
from holdfast.api.console_source import ConsoleBackend, Json, UnknownObject
from holdfast.api.identity import Principal

READ_LOGS: Final = "ReadJobLogs"
CANCEL: Final = "CancelJob"

_NUMBER: Final = re.compile(r"\d{1,6}", re.ASCII)
_BEGINNING: Final = "0"


class JobViews:
    """Views on one job; all of them raise ``Refused`` and what ``ConsoleBackend`` raises."""

    def __init__(self, source: ConsoleBackend) -> None:
        self._source = source

    async def details(self, request: Request, session: ConsoleSession) -> Response:
        """Details of a job."""
        name = request.query_params.get("name", "")
        await self._permit(session.principal, name)
        return json_response(await run_in_threadpool(self._source.job, name))

    async def checkpoints(self, request: Request, session: ConsoleSession) -> Response:
        """Checkpoints of a job."""
        name = request.query_params.get("name", "")
        await self._permit(session.principal, name)
        return json_response(await run_in_threadpool(self._source.checkpoints, name))

    async def evidence(self, request: Request, session: ConsoleSession) -> Response:
        """Evidence of the last hang of a job."""
        session.principal.permit(READ_LOGS)
        name = request.query_params.get("name", "")
        await self._permit(session.principal, name)
        return json_response(await run_in_threadpool(self._source.evidence, name))

    async def log(self, request: Request, session: ConsoleSession) -> Response:
        """Part of the log of a rank: the last lines, or what follows a cursor."""
        name, rank, attempt = await self._selected(request, session.principal)
        after = request.query_params.get("after", "")
        return json_response(
            await run_in_threadpool(self._source.read_log, name, rank, attempt, after)
        )

    async def log_file(self, request: Request, session: ConsoleSession) -> Response:
        """Whole log of a rank, to store as a file."""
        name, rank, attempt = await self._selected(request, session.principal)
        first = await run_in_threadpool(self._source.read_log, name, rank, attempt, _BEGINNING)
        stem = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")
        file = f"{stem}-attempt-{first['attempt']}-rank-{rank}.log"
        headers = {**HEADERS, "content-disposition": f'attachment; filename="{file}"'}
        parts = self._parts(name, rank, first)
        return StreamingResponse(parts, media_type="text/plain; charset=utf-8", headers=headers)

    async def cancel(
        self, request: Request, session: ConsoleSession, audited: AuditedRequest
    ) -> Response:
        """Request the cancellation of a job."""
        content = await read_body(request)
        audited.request = content
        session.principal.permit(CANCEL)
        name = content.get("job")
        if not isinstance(name, str):
            raise Refused(400, "job: expected the name of a job")
        await self._permit(session.principal, name)
        message = await run_in_threadpool(self._source.cancel_job, name)
        return json_response({"message": message}, status=202)

    async def _permit(self, principal: Principal, job: str) -> None:
        """Hide jobs of fleets that a person may not see."""
        fleet = await run_in_threadpool(self._source.fleet_of_job, job)
        if not principal.may_use(fleet):
            raise UnknownObject(f"job {job} not found")

    async def _selected(self, request: Request, principal: Principal) -> tuple[str, int, int]:
        """Job, rank and attempt of a request; attempt 0 is the current or last one."""
        principal.permit(READ_LOGS)
        query = request.query_params
        name, rank, attempt = query.get("job", ""), query.get("rank", ""), query.get("attempt", "0")
        if not (_NUMBER.fullmatch(rank) and _NUMBER.fullmatch(attempt)):
            raise Refused(400, "rank and attempt: expected numbers")
        await self._permit(principal, name)
        return name, int(rank), int(attempt)

    def _parts(self, name: str, rank: int, part: Json) -> Iterator[str]:
        yield part["text"]
        while part["has_more"]:
            part = self._source.read_log(name, rank, part["attempt"], part["cursor"])
            yield part["text"]
