"""A lab for tests: the real application on a socket-less client, with stand-ins behind it."""

import json
from contextlib import contextmanager
from dataclasses import replace

from starlette.testclient import TestClient

from leadline.web.server.address import LabAddress
from leadline.web.server.app import Lab
from leadline.web.server.settings import LabCalls, LabSettings

HERE = "tests.facts.web.server.stand_in"
CALLS = LabCalls(
    knobs=f"{HERE}:knobs_json",
    curves=f"{HERE}:curve_parts",
    train=f"{HERE}:train_live",
    lessons=f"{HERE}:lessons_json",
    lesson=f"{HERE}:lesson_json",
)
ADDRESS = LabAddress(8710, "secret")
TOKEN = {"X-Leadline-Token": "secret"}


def settings_for(place, **changes):
    pages = place / ".pages"
    (pages / "modules").mkdir(parents=True, exist_ok=True)
    (pages / "index.html").write_text("<!doctype html><title>Leadline</title>")
    (pages / "modules" / "app.js").write_text("export const a = 1;")
    (pages / "secret.py").write_text("token = 1")
    return replace(LabSettings(folder=place, pages=pages, calls=CALLS), **changes)


@contextmanager
def open_lab(place, **changes):
    """The lab and a client of it that knows the token."""
    lab = Lab(settings_for(place, **changes), ADDRESS)
    with TestClient(lab.app, base_url=ADDRESS.origin, headers=TOKEN) as client:
        yield lab, client


def parts_of(answer):
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def events_of(answer):
    """The events of a stream that has ended, with their numbers."""
    assert answer.status_code == 200, answer.text
    blocks = [block for block in answer.text.split("\n\n") if block.startswith("id:")]
    pairs = [block.split("\n", 1) for block in blocks]
    return [(int(a.removeprefix("id: ")), json.loads(b.removeprefix("data: "))) for a, b in pairs]
