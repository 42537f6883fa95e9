"""Who may ask the server, and what its answers let a page do.

- **Host** must be the server's own name: a foreign page whose name was made to lead to 127.0.0.1 (DNS
  rebinding) still sends its own.
- **Origin**, where a browser names one, must be the server's own.
- **The token** of the address is needed for everything but the page itself, which holds no secret. It
  is compared in constant time.
- **The policy** of every answer forbids scripts and styles that do not come as files of the server.

Nothing here reads a body: its size is bounded where it is read, and by what it says of its length.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from leadline.web.server.address import LabAddress
from leadline.web.server.events import json_bytes

__all__ = ["MOST_BODY", "PAGE_POLICY", "Gate", "document_policy", "page_policy"]

MOST_BODY = 64 * 1024
"""Bytes of a request at most."""
DOCUMENTS = ("/report", "/claims")
"""Pages of their own, whose address holds the token, because a frame cannot send headers."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'"
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def page_policy(framed_by: Iterable[str] = ()) -> str:
    """The policy of the page; `framed_by` are origins that may show it in a frame."""
    ancestors = " ".join(framed_by) or "'none'"
    return f"{PAGE_POLICY}; frame-ancestors {ancestors}"


def document_policy(own: str, framed_by: Iterable[str] = ()) -> str:
    """The policy of a report, which allows the scripts that it names itself, by their digests.

    The page of the lab shows it in a frame.
    """
    ancestors = " ".join(["'self'", *framed_by])
    return f"{own}; frame-ancestors {ancestors}"


class Gate:
    """Stands before the application, and hands over what may pass."""

    def __init__(self, app: App, *, address: LabAddress, framed_by: Iterable[str] = ()) -> None:
        self._app = app
        self._address = address
        self._headers = {
            b"content-security-policy": page_policy(framed_by).encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
            b"cross-origin-resource-policy": b"same-origin",
            b"cross-origin-opener-policy": b"same-origin",
            b"cache-control": b"no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "no websockets"})
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message.get("headers", [])}
                more = [(name, value) for name, value in self._headers.items() if name not in named]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, sentence = refusal
        body = json_bytes({"error": sentence})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            # What is left of a body that nobody reads must not be taken for the next request.
            (b"connection", b"close"),
        ]
        await send_with_headers(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        content = b"" if scope["method"] == "HEAD" else body
        await send_with_headers({"type": "http.response.body", "body": content})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, with the status; None where it may pass."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in headers.get(b"host", [])]
        if len(hosts) != 1 or hosts[0].lower() not in self._address.hosts:
            return 403, (
                f"This server answers to {self._address.origin} alone; the request names another "
                "host."
            )
        origins = [value.decode("latin-1") for value in headers.get(b"origin", [])]
        if any(origin.lower() not in self._address.origins for origin in origins):
            return 403, "The request comes from a page of another origin, which may not ask here."
        methods = ("GET", "HEAD") if _is_open(scope["path"]) else ("GET", "POST")
        if scope["method"] not in methods:
            return 405, f"This address answers {' and '.join(methods)} alone."
        if b"upgrade" in headers:
            return 400, "This server speaks plain HTTP; it has no websockets."
        lengths = headers.get(b"content-length", [])
        if any(not one.isdigit() or int(one) > MOST_BODY for one in lengths):
            return 413, f"The request is larger than {MOST_BODY // 1024} kB."
        if not self._may_enter(scope, headers):
            return 401, (
                "The token is missing or is that of another server: open the address that "
                "`leadline lab` has printed."
            )
        return None

    def _may_enter(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> bool:
        path = scope["path"]
        if _is_open(path):
            return True
        if path in DOCUMENTS:
            query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            tokens = [one.encode("utf-8", "surrogatepass") for one in query.get("token", [])]
        else:
            tokens = headers.get(b"x-leadline-token", [])
        expected = self._address.token.encode()
        return len(tokens) == 1 and hmac.compare_digest(tokens[0], expected)


def _is_open(path: str) -> bool:
    """Whether an address holds nothing secret: the page and what it loads."""
    return path in ("/", "/favicon.ico") or path.startswith("/static/")
