"""How long after a turn of the depth knob do its new curves stand on the page, and does dragging stutter?

The real server, the real page in Chromium. A turn is what a hand does: a new value in the number
field of design A and its event. It ends with the frame in which the page shows the facts of the new
design, which it draws together with its curves. Targets are milliseconds: 200 at 24 layers, 1,000 at
96. Every depth of a round is another one, so that nothing is answered from what was kept.

While the slider is dragged over 40 places in two seconds, `longest task` is the longest that the
browser reports of the page (it reports those above 50 ms; none is 0), the best of three drags.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from _harness import Result, median_with_interval

TURNS = {24: 200.0, 96: 1000.0}
"""Milliseconds at each depth."""
ROUNDS = 15
LONGEST_TASK = 50.0
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WATCH_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
}).observe({ type: "longtask" });
"""
TURN = """([depth]) => new Promise((done, fail) => {
    const facts = document.querySelector(".design .facts");
    const field = document.querySelector('.design input[type="number"]');
    const before = facts.textContent;
    const start = performance.now();
    field.value = String(depth);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
    const look = () => {
        if (facts.textContent !== before) return requestAnimationFrame(() => done(performance.now() - start));
        if (performance.now() - start > 20000) return fail(new Error("no new curves"));
        requestAnimationFrame(look);
    };
    look();
})"""
DRAG = """() => new Promise((done) => {
    const slider = document.querySelector('.design input[type="range"]');
    window.longTasks.length = 0;
    let place = 0;
    const step = () => {
        slider.value = String(4 + place);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        place += 1;
        if (place < 40) return setTimeout(step, 50);
        slider.dispatchEvent(new Event("change", { bubbles: true }));
        setTimeout(() => done(Math.max(0, ...window.longTasks)), 1500);
    };
    step();
})"""


def run() -> Iterable[Result]:
    """Turn the knob of a real page."""
    with _page() as page:
        for depth, target in TURNS.items():
            page.evaluate(TURN, [depth - 2])
            times = [page.evaluate(TURN, [depth - turn % 2]) for turn in range(ROUNDS)]
            middle, *spread = median_with_interval(times)
            yield Result(
                f"lab page: new curves of {depth} layers, milliseconds",
                "nothing: the time itself",
                middle,
                target,
                ROUNDS,
                (spread[0], spread[1]),
            )
        page.evaluate(TURN, [24])
        tasks = [page.evaluate(DRAG) for _ in range(3)]
        yield Result(
            "lab page: longest task while dragging, milliseconds",
            "nothing: the time itself",
            min(tasks),
            LONGEST_TASK,
            len(tasks),
            (min(tasks), max(tasks)),
        )


@contextmanager
def _page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "leadline", "lab", folder, "--no-browser", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            browser = None
            try:
                address = _address(server.stdout)
                place = os.environ.get("CHROMIUM") or shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=place, args=FLAGS)
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                page.add_init_script(WATCH_TASKS)
                page.goto(address)
                page.wait_for_selector(".design .verdict", timeout=60_000)
                page.wait_for_timeout(6000)
                yield page
            finally:
                if browser is not None:
                    browser.close()
                server.terminate()


def _address(lines: Iterable[str]) -> str:
    """The address that the command prints as JSON."""
    text = ""
    for line in lines:
        text += line
        try:
            return str(json.loads(text)["address"])
        except json.JSONDecodeError:
            continue
    raise RuntimeError(f"leadline lab printed no address: {text!r}")
