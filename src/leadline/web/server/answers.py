"""Answers of the server: JSON, errors as sentences, and requests that are read with bounds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leadline.errors import LeadlineError
from leadline.web.server.desk import DeskBusy, DeskRefusal
from leadline.web.server.events import json_bytes
from leadline.web.server.jobs import TooManyJobs
from leadline.web.server.security import MOST_BODY

__all__ = ["EXCEPTION_HANDLERS", "json_response", "read_json", "refuse"]

SLOWEST = 10.0
"""Seconds within which the body of a request has to come."""
_SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not answer that method.",
}


def json_response(value: Any, status: int = 200) -> Response:
    """Return a value, or bytes that are JSON already, as the answer."""
    content = value if isinstance(value, bytes) else json_bytes(value)
    return Response(content, status, media_type="application/json")


def refuse(status: int, sentence: str) -> HTTPException:
    """Return the exception that answers with this status and sentence."""
    return HTTPException(status, sentence)


async def read_json(request: Request) -> dict[str, Any]:
    """Return the object that a request holds; refuse what is too large, too slow or no object."""
    body = bytearray()

    async def read() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > MOST_BODY:
                raise refuse(413, f"The request is larger than {MOST_BODY // 1024} kB.")

    try:
        await asyncio.wait_for(read(), SLOWEST)
    except TimeoutError:
        raise refuse(408, f"The request did not come within {SLOWEST:.0f} s.") from None
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise refuse(400, "The request is no JSON.") from None
    if not isinstance(value, dict):
        raise refuse(400, "The request is no JSON object.")
    return value


async def _say_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    usual = _SENTENCES.get(status)
    default = usual is not None and error.detail in ("Not Found", "Method Not Allowed")
    answer = json_response({"error": usual if default else error.detail}, status)
    answer.headers.update(error.headers or {})
    return answer


async def _say_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, LeadlineError)
    status = 422
    if isinstance(error, DeskBusy | TooManyJobs):
        status = 429
    elif isinstance(error, DeskRefusal) and error.fault:
        status = 500
    return json_response({"error": str(error)}, status)


async def _say_fault(_: Request, error: Exception) -> Response:
    return json_response(
        {"error": f"This is a fault of Leadline: {type(error).__name__}: {error}"}, 500
    )


EXCEPTION_HANDLERS: dict[Any, Any] = {
    HTTPException: _say_http,
    LeadlineError: _say_refusal,
    Exception: _say_fault,
}
