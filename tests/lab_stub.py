"""A small server that stands in for the lab: the pages as they are, and answers by formula.

Its curves are made up, so tests of the page know what they must show without a model. It keeps the
requests that it got, in `Stub.requests`.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leadline.reading.page import vendor
from leadline.web import pages

PAGES = Path(pages.__file__).parent
VENDOR = Path(vendor.__file__).parent
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
}
TOKEN = "stub-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
PACE = 0.02
"""Seconds between two steps of a training."""
CHOICES = {
    "connection": {
        "identity": "x + f(x): the stream goes straight through and the branch is added.",
        "none": "f(x) alone: no shortcut, every block replaces the stream.",
        "deepnorm": "alpha x + f(x) with a small start: post-norm that trains a thousand layers deep.",
        "rezero": "x + w f(x) with w = 0 at the start, learned per branch.",
        "hyper": "Several lanes of the stream, mixed by learned matrices at every write.",
    },
    "placement": {
        "pre": "A norm before every branch; the stream itself is never normed.",
        "post": "A norm after every addition, as in the first Transformer and in BERT.",
        "sandwich": "A norm before and after every branch.",
        "none": "No norm at any place.",
    },
    "norm": {
        "layernorm": "Subtracts the mean of the vector and divides by its deviation.",
        "rmsnorm": "Divides by the root mean square.",
        "none": "Leaves the vector as it is.",
    },
    "init": {
        "auto": "What the connection asks for.",
        "gpt2": "N(0, 0.02), what writes to the stream divided by sqrt(2 L).",
        "xavier": "Variance by the mean of both widths.",
    },
    "mask": {
        "causal": "Each token sees itself and what came before.",
        "full": "All see all.",
    },
    "mlp": {
        "gelu_tanh": "Two matrices with GELU between them.",
        "swiglu": "A gate times a line.",
        "none": "Attention alone.",
    },
    "positions": {
        "learned": "A learned vector for every place.",
        "rotary": "Queries and keys are turned by an angle.",
        "none": "No order is told.",
    },
}
OPTIONS = {
    "hyper": [
        {"name": "lanes", "kind": "integer", "default": 2, "min": 1, "max": 8},
        {"name": "dynamic", "kind": "boolean", "default": False},
    ]
}
NUMBERS = [
    ("depth", "integer", 24, 2, 96, 1),
    ("width", "integer", 64, 16, 256, 16),
    ("heads", "integer", 4, 1, 16, 1),
    ("gain", "number", 1.0, 0.0, 4.0, 0.05),
    ("seed", "integer", 0, 0, 99, 1),
]
QUANTITIES = [
    (
        "stream.norm",
        "Length of the stream",
        "‖x‖",
        "log",
        "How long the vector of a token is after each layer. It should neither explode nor fade.",
    ),
    (
        "gradient.stream",
        "Gradient that comes back",
        "‖∂L/∂x‖",
        "log",
        "How strongly the loss pulls at the stream after each layer. If it is tiny at layer 0, the first layers cannot learn.",
    ),
    (
        "tokens.cosine",
        "Likeness of the tokens",
        "cos",
        "linear",
        "The mean cosine between the vectors of different tokens. At 1 all tokens point the same way and the model has forgotten which is which.",
    ),
    (
        "tokens.relative_residual",
        "What still tells tokens apart",
        "",
        "log",
        "The share of the stream that differs between tokens. It can fall far below what a float can hold: rank collapse.",
    ),
    (
        "update.ratio",
        "Size of each write",
        "‖u‖/‖x‖",
        "log",
        "How large a write is beside the stream that it is added to.",
    ),
    (
        "attention.spectral_norm",
        "Strength of attention",
        "‖A‖",
        "linear",
        "The largest factor by which an attention matrix can lengthen a vector of values.",
    ),
    (
        "jacobian.distance",
        "Distance of a block from doing nothing",
        "‖J − I‖",
        "log",
        "How far the derivative of a block is from the identity; at 0 the block changes nothing.",
    ),
]
PRESETS = [
    {
        "id": "post-against-pre",
        "title": "Post against pre",
        "story": "With norms after every addition the gradient is squeezed at each layer, so the first layers of a deep model hear almost nothing; with norms before the branches the shortcut stays open.",
        "a": {"depth": 48, "placement": "post"},
        "b": {"depth": 48},
        "watch": "gradient.stream",
    },
    {
        "id": "no-shortcut",
        "title": "No shortcut",
        "story": "Without the addition every block replaces the stream. The gradient is a product of many small factors.",
        "a": {"connection": "none", "depth": 48},
        "b": {"depth": 48},
        "watch": "gradient.stream",
    },
    {
        "id": "rank-collapse",
        "title": "Rank collapse",
        "story": "Attention averages. Without shortcut and MLP all tokens become the same vector, doubly exponentially fast.",
        "a": {"connection": "none", "mlp": "none", "placement": "none", "depth": 64},
        "b": {"mlp": "none", "depth": 64},
        "watch": "tokens.relative_residual",
    },
    {
        "id": "rezero",
        "title": "ReZero",
        "story": "Every branch begins with the factor 0, so the whole model begins as the identity.",
        "a": {"connection": "rezero"},
        "b": {},
        "watch": "update.ratio, jacobian.distance",
    },
    {
        "id": "gpt2",
        "title": "GPT-2's 1/√N",
        "story": "What writes to the stream is drawn smaller by the square root of the number of writes.",
        "a": {"init": "gpt2", "depth": 96},
        "b": {"depth": 96},
        "watch": "stream.norm",
    },
    {
        "id": "deepnorm",
        "title": "DeepNorm",
        "story": "The stream is weighted more than the branch, so that post-norm trains.",
        "a": {"connection": "deepnorm", "placement": "post", "depth": 96},
        "b": {"placement": "post", "depth": 96},
        "watch": "gradient.stream",
    },
    {
        "id": "hyper",
        "title": "Hyper-connections",
        "story": "Several lanes, mixed at every write.",
        "a": {"connection": "hyper(lanes=4)"},
        "b": {},
        "watch": "stream.norm",
    },
]


def knobs() -> dict[str, Any]:
    """What `GET /api/knobs` answers."""
    choices = [
        {
            "name": name,
            "label": name.capitalize(),
            "kind": "choice",
            "default": next(iter(parts)),
            "choices": [
                {"name": part, "summary": text, "options": OPTIONS.get(part, [])}
                for part, text in parts.items()
            ],
        }
        for name, parts in CHOICES.items()
    ]
    keys = ("name", "kind", "default", "min", "max", "step")
    numbers = [dict(zip(keys, one, strict=True)) | {"label": one[0]} for one in NUMBERS]
    text = {"name": "text", "label": "Text", "kind": "text", "default": "The sea is deep."}
    names = ("name", "label", "symbol", "scale", "about")
    quantities = [dict(zip(names, one, strict=True)) | {"unit": ""} for one in QUANTITIES]
    return {
        "knobs": [
            *choices[:3],
            *numbers[:3],
            choices[3],
            numbers[3],
            *choices[4:],
            text,
            numbers[4],
        ],
        "presets": PRESETS,
        "quantities": quantities,
    }


def defaults() -> dict[str, Any]:
    return {knob["name"]: knob["default"] for knob in knobs()["knobs"]}


def curves(design: dict[str, Any], *, trained: float = 0.0) -> list[dict[str, Any]]:
    """Made-up curves of a design; `trained` from 0 to 1 moves them as training would."""
    depth, post = design["depth"], design["placement"] == "post"
    bare = str(design["connection"]).startswith("none")
    still = str(design["connection"]).startswith("rezero") and not trained
    at, writes = list(range(depth + 1)), list(range(1, depth + 1))
    gain = design["gain"] * (1 + 0.3 * math.sin(0.9 * design["seed"]))
    length = [8.0 if post else 8 * math.sqrt(1 + gain * k) for k in at]
    fall = 0.45 if bare else 0.06 if post else 0.0
    pull = [
        0.02 * 10 ** (-fall * (1 - 0.8 * trained) * (depth - k)) * (1 + 0.2 * math.sin(k))
        for k in at
    ]
    speed = 0.5 if bare else 0.05 if post else 0.01
    cosine = [1 - 0.9 * math.exp(-speed * k) for k in at]
    exponents = [-int(1.7**k) if bare and k < 13 else -900 if bare else 0 for k in at]
    residual = [0.9 * (1 if bare else math.exp(-speed * k)) for k in at]
    ratio = [0.0 if still else gain / (1 + (0 if post else 0.5 * k)) for k in writes]
    names = [one[0] for one in QUANTITIES]
    lines: list[list[tuple[str, list[int], list[float], list[int] | None]]] = [
        [("stream", at, length, None)],
        [("stream", at, pull, None)],
        [("stream", at, cosine, None)],
        [("stream", at, residual, exponents if bare else None)],
        [
            ("attention", writes, [0.6 * one for one in ratio], None),
            ("mlp", writes, ratio, None),
        ],
        [("attention", writes, [1 + 0.4 * math.sin(k / 3) ** 2 for k in writes], None)],
        [("block", writes, [1.4 * one for one in ratio], None)],
    ]
    return [
        {
            "quantity": name,
            "series": [
                {"label": label, "layers": layers, "values": values}
                | ({"exponents": powers} if powers else {})
                for label, layers, values, powers in series
            ],
        }
        for name, series in zip(names, lines, strict=True)
    ]


def laws(design: dict[str, Any]) -> list[dict[str, Any]]:
    at = list(range(design["depth"] + 1))
    if design["placement"] == "post":
        return []
    return [
        {
            "quantity": "stream.norm",
            "name": "root",
            "label": "grows as √layer",
            "kind": "law",
            "layers": at,
            "values": [8 * math.sqrt(1 + 0.8 * k) for k in at],
            "source": "Xiong et al. 2020",
        },
        {
            "quantity": "attention.spectral_norm",
            "name": "upper",
            "label": "at most √tokens",
            "kind": "upper",
            "layers": at[1:],
            "values": [math.sqrt(16)] * design["depth"],
            "source": "by hand",
        },
    ]


def verdict(design: dict[str, Any]) -> dict[str, Any]:
    depth = design["depth"]
    if str(design["connection"]).startswith("none"):
        sentence = f"No shortcut, {depth} layers: all tokens become equal by layer 9. Add the stream back after every branch."
        finding = {
            "code": "D05",
            "name": "tokens-equal",
            "sentence": "Tokens are equal from layer 9.",
            "layers": [9],
        }
        return {"level": "serious", "sentence": sentence, "findings": [finding]}
    if design["placement"] == "post" and depth > 18:
        sentence = f"Post-norm, {depth} layers: the gradient falls 1,000-fold on its way to layer 1. Train with warm-up, or place norms before."
        finding = {
            "code": "D09",
            "name": "post-norm-deep",
            "sentence": "Nothing scales the branches.",
            "layers": [1],
        }
        return {"level": "warning", "sentence": sentence, "findings": [finding]}
    sentence = f"Healthy: {depth} layers, and the gradient reaches all of them."
    about = [{"key": "place.pre", "values": {}}, {"key": "layers", "values": {"n": depth}}]
    said = [{"key": "healthy", "values": {}}, {"key": "add-shortcut", "values": {}}]
    if depth == 11:
        said = [{"key": "not a phrase of the page", "values": {}}]
    phrases = {"about": about, "said": said}
    return {"level": "healthy", "sentence": sentence, "findings": [], **phrases}


def static_files() -> dict[str, Path]:
    """What stands under `static/`: the pages, and uPlot in `vendor/`."""
    places = {"": PAGES, "vendor/": VENDOR}
    return {
        prefix + file.relative_to(folder).as_posix(): file
        for prefix, folder in places.items()
        for file in folder.rglob("*")
        if file.suffix in TYPES
    }


@dataclass
class Job:
    design: dict[str, Any]
    training: dict[str, Any]
    stopped: threading.Event = field(default_factory=threading.Event)
    going: threading.Event = field(default_factory=threading.Event)


@dataclass
class Stub:
    """The state of the server, for tests to read."""

    requests: list[tuple[str, Any]] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    delay: float = 0.0

    def asked(self, path: str) -> list[Any]:
        return [body for place, body in self.requests if place == path]


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: Stub

    def log_message(self, *args: Any) -> None:
        """Nothing is written down of a request."""

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if place.path == "/" or place.path.startswith("/static/"):
            name = place.path.removeprefix("/static/") if place.path != "/" else "index.html"
            file = static_files().get(name)
            if file is None:
                return self.send(b"{}", status=404)
            return self.send(file.read_bytes(), kind=TYPES[file.suffix])
        token = self.headers.get("X-Leadline-Token") or parse_qs(place.query).get("token", [""])[0]
        if token != TOKEN:
            return self.json({"error": "The token is missing."}, status=401)
        if place.path == "/api/session":
            session = {"version": "0", "folder": ".", "flags": {"code": False}}
            return self.json({**session, "languages": ["en", "zh", "ru"], "threads": 1})
        if place.path == "/api/knobs":
            return self.json(knobs())
        if place.path == "/claims":
            return self.send(b"<!doctype html><title>claims</title>", kind="text/html")
        if place.path.startswith("/api/jobs/") and place.path.endswith("/events"):
            return self.events(self.stub.jobs[place.path.split("/")[3]])
        return self.json({"error": "There is no such page."}, status=404)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        self.stub.requests.append((self.path, body))
        if self.headers.get("X-Leadline-Token") != TOKEN:
            return self.json({"error": "The token is missing."}, status=401)
        if self.path == "/api/curves":
            return self.curves(defaults() | body["design"])
        if self.path == "/api/train":
            name = f"job{len(self.stub.jobs)}"
            self.stub.jobs[name] = Job(defaults() | body["design"], body["training"])
            self.stub.jobs[name].going.set()
            return self.json({"job": name})
        _, _, _, name, verb = self.path.split("/")
        job = self.stub.jobs[name]
        if verb == "stop":
            job.stopped.set()
        if verb == "pause":
            job.going.clear()
        else:
            job.going.set()
        return self.json({})

    def curves(self, design: dict[str, Any]) -> None:
        threading.Event().wait(self.stub.delay)
        if design["width"] % design["heads"]:
            reason = f"The width {design['width']} cannot be divided among {design['heads']} heads; choose 1, 2, 4 or 8 heads."
            line = json.dumps({"part": "error", "knob": "heads", "reason": reason}) + "\n"
            return self.send(line.encode(), kind="application/x-ndjson")
        facts = {"parameters": 12 * design["depth"] * design["width"] ** 2, "tokens": 16}
        parts = [
            {
                "part": "curves",
                "design": design,
                "curves": curves(design),
                "facts": {**facts, "seconds": 0.1},
            },
            {"part": "laws", "laws": laws(design)},
            {"part": "verdict", "verdict": verdict(design)},
            {"part": "end"},
        ]
        lines = "".join(json.dumps(part) + "\n" for part in parts)
        return self.send(lines.encode(), kind="application/x-ndjson")

    def events(self, job: Job) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        steps = int(job.training["steps"])
        try:
            for step in range(1, steps + 1):
                job.going.wait()
                if job.stopped.wait(PACE):
                    break
                self.event(
                    step,
                    {
                        "event": "step",
                        "step": step,
                        "loss": 5.5 * math.exp(-step / 60),
                        "rate": 1e-3,
                    },
                )
                if step % 10 == 0:
                    found = curves(job.design, trained=step / steps)
                    self.event(step, {"event": "gauges", "step": step, "curves": found})
                    if step == 40:
                        told = {"level": "serious", "sentence": "Tokens became equal."}
                        self.event(step, {"event": "finding", "step": step, **told})
            reason = "stopped" if job.stopped.is_set() else "finished"
            self.event(steps + 1, {"event": "end", "reason": reason})
        except (BrokenPipeError, ConnectionResetError):
            pass

    def event(self, number: int, payload: dict[str, Any]) -> None:
        self.wfile.write(f"id: {number}\ndata: {json.dumps(payload)}\n\n".encode())
        self.wfile.flush()

    def json(self, payload: Any, *, status: int = 200) -> None:
        self.send(json.dumps(payload).encode(), status=status, kind="application/json")

    def send(self, body: bytes, *, status: int = 200, kind: str = "application/json") -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""


def serve(*, port: int = 0) -> tuple[ThreadingHTTPServer, Stub, str]:
    """Start the server in a thread; returns it, its state, and the address of the page."""
    stub = Stub()
    handler = type("Answers", (_Answers,), {"stub": stub})
    server = _QuietServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, stub, f"http://127.0.0.1:{server.server_address[1]}/?token={TOKEN}"
