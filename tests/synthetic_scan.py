"""Records of scans with known numbers: checkpoints of a run, or of a zoo, without any model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leadline.record import Quantity, Reading, Record, Site

STREAM = Quantity(
    name="stream.norm",
    title="Stream norm",
    symbol="x",
    formula="norm of the stream",
    lives_on="stream",
    headline="mean",
    scale="log",
    topic="stream",
    leads=True,
)
GRADIENT = Quantity(
    name="gradient.stream",
    title="Gradient at the stream",
    symbol="g",
    formula="norm of the gradient",
    lives_on="stream",
    headline="value",
    scale="log",
    topic="gradient",
    leads=True,
)
COSINE = Quantity(
    name="tokens.cosine",
    title="Token cosine",
    symbol="c",
    formula="cosine",
    lives_on="stream",
    headline="value",
    topic="tokens",
)
SEVERE = {
    "code": "W02",
    "name": "weights-scale-odd",
    "severity": "serious",
    "verdict": "A weight is odd.",
    "layers": [2, 3],
}

Number = Callable[[str, int, int], float]
"""The value of a quantity in a layer of a checkpoint, by its place in the order."""


def entry(name: str, **changes: Any) -> dict[str, Any]:
    """The entry of a checkpoint that was measured and is healthy."""
    return {
        "name": name,
        "run": name,
        "source": f"runs/{name}",
        "step": None,
        "group": "runs",
        "fingerprint": "f",
        "status": "measured",
        "reason": "",
        "healthy": True,
        "answer": ["Nothing unusual."],
        "findings": [],
        "class": "GPT",
        "parameters": 1000,
        "loss": 2.0,
        "seconds": 1.5,
        **changes,
    }


def scan_record(
    entries: Sequence[Mapping[str, Any]],
    number: Number = lambda _name, layer, _at: 1.0 + layer,
    *,
    layers: int = 6,
    stopped: str | None = None,
) -> Record:
    """The record of a scan; `number` gives the values of its quantities."""
    record = Record()
    record.note("instrument", {"name": "scan", "settings": {"seed": 0}, "stopped": stopped})
    for quantity in (STREAM, GRADIENT, COSINE):
        record.describe(quantity)
    for at, one in enumerate(entries):
        record.note(f"checkpoint:{one['name']}", dict(one))
        if one["status"] != "measured":
            continue
        record.note(
            f"measurement:{one['name']}",
            {"model": {"name": one["name"], "class": "GPT"}, "probes": ["stream"]},
        )
        record.append(
            Reading(
                quantity.name,
                Site("decoder", layer),
                quantity.headline,
                number(quantity.name, layer, at),
                run=one["run"],
                step=one["step"] or 0,
            )
            for quantity in (STREAM, GRADIENT, COSINE)
            for layer in range(1, layers + 1)
        )
    return record


def run_record(count: int, number: Number, **changes: Any) -> Record:
    """The scan of so many checkpoints of one run, at steps 100, 200, and so on."""
    entries = [entry(f"checkpoint-{100 * at}", step=100 * at) for at in range(1, count + 1)]
    return scan_record(entries, number, **changes)


def broken_run() -> Record:
    """Twelve checkpoints: in layer 3 the stream is ten times as large from the ninth one on."""

    def number(name: str, layer: int, at: int) -> float:
        usual = 1.0 + 0.01 * math.sin(7 * layer + 3 * at)
        return usual * (10.0 if name == "stream.norm" and layer == 3 and at >= 8 else 1.0)

    entries = [entry(f"checkpoint-{100 * at}", step=100 * at) for at in range(1, 13)]
    for one in entries[8:]:
        one |= {"healthy": False, "findings": [SEVERE], "answer": ["1 serious finding."]}
    entries[3] = entry(
        "checkpoint-400", step=400, status="refused", reason="It is cut short.", healthy=None
    )
    return scan_record(entries, number)
