"""The application: every address of the lab, and what answers it.

Nothing is computed in the event loop: curves come from one warm process, records and pages from
another, and every job has a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import leadline
from leadline.web.server.address import LabAddress
from leadline.web.server.answers import EXCEPTION_HANDLERS, json_response, read_json, refuse
from leadline.web.server.desk import Desk, DeskRefusal
from leadline.web.server.diagnosing import check_request
from leadline.web.server.events import EventLog, json_bytes, sse_stream
from leadline.web.server.followed_runs import RunRoom
from leadline.web.server.jobs import BrowserJob, JobRoom
from leadline.web.server.process import ProcessSettings
from leadline.web.server.security import Gate, document_policy
from leadline.web.server.settings import LabSettings
from leadline.web.server.shelf import RecordShelf
from leadline.web.server.static_files import StaticFiles

__all__ = ["LANGUAGES", "Lab"]

LANGUAGES = ("en", "zh", "ru")
MOST_TEXT = 4_000
MOST_OVERLAID = 8
"""So many records on one page: more lines than that cannot be told apart."""
SHORT = 2_000
"""Bytes of a part up to which it is looked into."""
END = b'{"part":"end"}'
_DOCUMENTS = "leadline.web.server.documents"
_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


class Lab:
    """One server of the lab: its desks, jobs and records, and the application that asks them."""

    def __init__(self, settings: LabSettings, address: LabAddress) -> None:
        self.settings = settings
        plugins = tuple(str(path.absolute()) for path in settings.plugins)
        module = settings.calls.curves.partition(":")[0]
        # The reading process never needs torch but for the code that the page of claims shows.
        reader = ProcessSettings(plugins, nice=2, threads=1, debug=settings.debug)
        # One thread: matrices of this size gain nothing from a second one, and two that wait for each
        # other took four times as long beside other programs.
        curves = ProcessSettings(plugins, (module,), threads=1, debug=settings.debug)
        self.curves = Desk(curves, limit=settings.limit)
        self.reading = Desk(reader, limit=settings.reading_limit)
        self.jobs = JobRoom(ProcessSettings(plugins, nice=5, threads=1, debug=settings.debug))
        self.runs = RunRoom(reader)
        self.shelf = RecordShelf(self.reading, folder=settings.folder, files=settings.files)
        self._kept: dict[str, bytes] = {}
        self._streams: list[EventLog] = []
        self.app = Gate(self._application(), address=address, framed_by=settings.framed_by)

    def _application(self) -> Starlette:
        files = StaticFiles(self.settings.pages)
        routes = [
            Route("/", files.index),
            Route("/favicon.ico", _nothing),
            Route("/static/{name:path}", files.file),
            Route("/api/session", self.session),
            Route("/api/knobs", self.knobs),
            Route("/api/curves", self.curve_parts, methods=["POST"]),
            Route("/api/train", self.train, methods=["POST"]),
            Route("/api/diagnose", self.diagnose, methods=["POST"]),
            Route("/api/jobs", self.job_list),
            Route("/api/jobs/{id}/events", self.job_events),
            Route("/api/jobs/{id}/{order}", self.job_order, methods=["POST"]),
            Route("/api/records", self.records),
            Route("/api/records/events", self.record_events),
            Route("/api/runs/{id}/events", self.run_events),
            Route("/api/lessons", self.lessons),
            Route("/api/lessons/{id}", self.lesson),
            Route("/report", self.report),
            Route("/claims", self.claims),
        ]
        return Starlette(
            routes=routes, lifespan=self._lifespan, exception_handlers=EXCEPTION_HANDLERS
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.curves.open()
        self.reading.open()
        # What the first design costs more than others is spent while the page is loading.
        warming = asyncio.create_task(self._warm_up())
        try:
            yield
        finally:
            self.hang_up()
            warming.cancel()
            await asyncio.gather(
                *(part.close() for part in (self.shelf, self.jobs, self.runs)),
                *(desk.close() for desk in (self.curves, self.reading)),
            )

    async def _warm_up(self) -> None:
        with suppress(DeskRefusal):
            async for _ in self.curves.parts(self.settings.calls.curves, {}):
                pass

    def hang_up(self) -> None:
        """Close every stream of events, so that no page that still reads holds up the end."""
        for log in self._streams:
            log.close()

    # --- the session and the playground --------------------------------------------------------

    async def session(self, _: Request) -> Response:
        """What the page should know of this server."""
        folder = self.settings.folder
        return json_response(
            {
                "version": leadline.__version__,
                "folder": None if folder is None else str(folder),
                "flags": {"code": self.settings.code},
                "languages": LANGUAGES,
                "threads": os.cpu_count() or 1,
                "processor": platform.processor() or platform.machine(),
            }
        )

    async def knobs(self, _: Request) -> Response:
        """The knobs of the playground, its presets and its quantities."""
        if "knobs" not in self._kept:
            self._kept["knobs"] = await self.curves.answer(self.settings.calls.knobs)
        return json_response(self._kept["knobs"])

    async def curve_parts(self, request: Request) -> Response:
        """The curves of a design, part by part."""
        body = await read_json(request)
        design = _design(body)
        if (long := _too_long(design)) is not None:
            return _lines([_error_part(DeskRefusal(long, "text"))])
        client, side = body.get("client", ""), body.get("side", "a")
        if not isinstance(client, str) or not isinstance(side, str) or len(client + side) > 200:
            raise refuse(400, "`client` and `side` are short texts.")
        parts = self.curves.parts(self.settings.calls.curves, design, client=client, side=side)
        try:
            first = await anext(parts, b'{"part":"nothing"}')
        except DeskRefusal as refusal:
            return _lines([_error_part(refusal)])
        # No part with curves is as short. A design that cannot be built is an answer like others:
        # browsers write every other status into their console, as a fault of the page.
        if len(first) < SHORT and json.loads(first).get("part") in ("error", "superseded"):
            return _lines([first])

        async def lines() -> AsyncIterator[bytes]:
            try:
                async with aclosing(parts):
                    yield first + b"\n"
                    async for part in parts:
                        if part != END:  # said below, when nothing can go wrong any more
                            yield part + b"\n"
            except DeskRefusal as refusal:
                yield _error_part(refusal) + b"\n"
                return
            yield END + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    # --- jobs ------------------------------------------------------------------------------------

    async def train(self, request: Request) -> Response:
        """Begin to train a design."""
        body = await read_json(request)
        design = _design(body)
        if (long := _too_long(design)) is not None:
            return json_response({"knob": "text", "reason": long}, 422)
        training = body.get("training", {})
        if not isinstance(training, dict):
            raise refuse(400, "`training` is an object: steps, rate, warmup, task, every.")
        job = self.jobs.begin("train", _title(design), self.settings.calls.train, design, training)
        return json_response({"job": job.id})

    async def diagnose(self, request: Request) -> Response:
        """Begin to diagnose a model."""
        body = await read_json(request)
        asked_for = check_request(body, code=self.settings.code)
        title = str(asked_for["model"])
        job = self.jobs.begin("diagnose", title, self.settings.calls.diagnose, asked_for)
        return json_response({"job": job.id})

    async def job_list(self, _: Request) -> Response:
        """All jobs, the first ones first."""
        return json_response([job.to_json() for job in self.jobs])

    async def job_events(self, request: Request) -> Response:
        """What a job tells, from the event on that the page has seen last."""
        return self._stream(nullcontext(self._job(request).log), _last_event(request))

    async def job_order(self, request: Request) -> Response:
        """Stop a job, let it wait, or let it go on."""
        orders = {"stop": self.jobs.stop, "pause": self.jobs.pause, "continue": self.jobs.go_on}
        order = request.path_params["order"]
        if order not in orders:
            raise refuse(404, "A job can be told to stop, pause or continue.")
        job = self._job(request)
        await orders[order](job)
        return json_response(job.to_json())

    def _job(self, request: Request) -> BrowserJob:
        job = self.jobs.get(request.path_params["id"])
        if job is None:
            raise refuse(404, "There is no such job, or it ended long ago.")
        return job

    # --- records ---------------------------------------------------------------------------------

    async def records(self, _: Request) -> Response:
        """The records of the folder with their verdicts."""
        return json_response(await self.shelf.entries())

    async def record_events(self, request: Request) -> Response:
        """What changes in the folder, from now on or from the event that the page has seen last."""
        after = _last_event(request) or self.shelf.changes.last
        return self._stream(self.shelf.listen(), after)

    async def run_events(self, request: Request) -> Response:
        """A run that is being written."""
        file = await self.shelf.file(request.path_params["id"])
        if file is None:
            raise refuse(404, "There is no such record in this folder.")
        self.runs.check_room(file)
        return self._stream(self.runs.follow(file), _last_event(request))

    async def report(self, request: Request) -> Response:
        """The report of a record, or of several on one page."""
        ids = list(dict.fromkeys(request.query_params.getlist("record")))
        if not 0 < len(ids) <= MOST_OVERLAID:
            raise refuse(400, f"Name one record, or up to {MOST_OVERLAID}, as record=ID.")
        files = [await self.shelf.file(name) for name in ids]
        paths = [str(file.path) for file in files if file is not None]
        names = [file.relative.removesuffix(".leadline") for file in files if file is not None]
        if len(paths) < len(ids):
            raise refuse(404, "There is no such record in this folder.")
        text = await self.reading.answer(f"{_DOCUMENTS}:report_page_text", paths, names)
        return self._document(json.loads(text))

    # --- lessons and claims ----------------------------------------------------------------------

    async def lessons(self, request: Request) -> Response:
        """The list of lessons in a language."""
        return await self._lesson(request, "lessons", self.settings.calls.lessons)

    async def lesson(self, request: Request) -> Response:
        """One lesson in a language."""
        name = request.path_params["id"]
        if not re.fullmatch(r"[\w-]{1,80}", name, re.ASCII):
            raise refuse(404, "There is no such lesson.")
        return await self._lesson(request, "lesson", self.settings.calls.lesson, name)

    async def claims(self, request: Request) -> Response:
        """The page of claims; it reads the language from its own address."""
        _language(request)
        if "claims" not in self._kept:
            text = await self.reading.answer(f"{_DOCUMENTS}:claims_page_text")
            self._kept["claims"] = text
        return self._document(json.loads(self._kept["claims"]))

    async def _lesson(self, request: Request, function: str, call: str, *name: str) -> Response:
        language = _language(request)
        key = "/".join((function, *name, language))
        if key not in self._kept:
            arguments = call, *name, language
            self._kept[key] = await self.reading.answer(f"{_DOCUMENTS}:{function}", *arguments)
        return json_response(self._kept[key])

    # --- what they share -------------------------------------------------------------------------

    def _document(self, text: str) -> Response:
        own = _POLICY.search(text)
        policy = "default-src 'none'" if own is None else _unescaped(own[1])
        headers = {"content-security-policy": document_policy(policy, self.settings.framed_by)}
        content = text.encode("utf-8", "replace")  # the name of a file may be no text
        return Response(content, media_type="text/html", headers=headers)

    def _stream(self, source: AbstractAsyncContextManager[EventLog], after: int) -> Response:
        async def events() -> AsyncIterator[bytes]:
            # Entered here, so that it is also left where the reader goes before the first event.
            async with source as log:
                self._streams.append(log)
                try:
                    async for part in sse_stream(log, after):
                        yield part
                finally:
                    self._streams.remove(log)

        return StreamingResponse(events(), media_type="text/event-stream")


async def _nothing(_: Request) -> Response:
    return Response(status_code=204)


def _lines(parts: list[bytes]) -> Response:
    content = b"".join(part + b"\n" for part in parts)
    return Response(content, media_type="application/x-ndjson")


def _error_part(refusal: DeskRefusal) -> bytes:
    return json_bytes({"part": "error", "knob": refusal.knob, "reason": str(refusal)})


def _design(body: dict[str, Any]) -> dict[str, Any]:
    """The design of a request; what it may hold is the design's own affair."""
    design = body.get("design", {})
    if not isinstance(design, dict):
        raise refuse(400, "`design` is an object.")
    return design


def _too_long(design: dict[str, Any]) -> str | None:
    """Say that the text of a design is too long; None where it is not."""
    text = design.get("text", "")
    if not isinstance(text, str) or len(text) <= MOST_TEXT:
        return None
    return f"The text has {len(text):,} characters; {MOST_TEXT:,} are read at most."


def _title(design: dict[str, Any]) -> str:
    words = [f"{key} {value}" for key, value in sorted(design.items()) if key != "text"]
    return ", ".join(words)[:200] or "the default design"


def _language(request: Request) -> str:
    language = request.query_params.get("language", "en")
    if language not in LANGUAGES:
        raise refuse(400, f"The lab speaks {', '.join(LANGUAGES)}.")
    return language


def _last_event(request: Request) -> int:
    text = request.headers.get("last-event-id", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise refuse(400, "Last-Event-ID is the number of an event.")
    return int(text)


def _unescaped(text: str) -> str:
    return text.replace("&#x27;", "'").replace("&amp;", "&")
