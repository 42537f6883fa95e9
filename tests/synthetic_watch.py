"""Records of watched runs made by formula: no model, no torch. They can grow sample by sample.

The loss of every update falls as a power of the step. With `trouble` the attention logits of one
layer begin to grow at nine tenths of the run: first its logits, then its updates, then gradients
and the loss. Two warnings are stored as findings when they are due.

    python -m tests.synthetic_watch FILE --pause 0.2     writes a file that grows, to look at
    python -m tests.synthetic_watch FILE --ask           writes a sample for each line of its input
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.rows.site import OUTSIDE, RUN
from leadline.record.run.training import GRADIENT_NORM, LEARNING_RATE
from leadline.record.run.watching import CLIPPING, LOG_Z, LOSS, SURPRISE, WEIGHT_UPDATE

if TYPE_CHECKING:
    from pathlib import Path


def _over_layers(name: str, title: str, symbol: str, lives_on: Any, **more: Any) -> Quantity:
    return Quantity(name, title, symbol, f"the formula of {name}", lives_on=lives_on, **more)


STREAM_NORM = _over_layers("stream.norm", "Stream norm", "‖x_l‖", "stream", scale="log", leads=True)
LARGEST = _over_layers(
    "stream.largest", "Largest value of the stream", "max |x_l|", "stream", scale="log",
    headline="value",
)  # fmt: skip
COSINE = _over_layers(
    "tokens.cosine", "Token cosine", "mean cos(x_i, x_j)", "stream", better="low", leads=True
)
RATIO = _over_layers(
    "update.ratio", "Update over stream", "‖u‖ / ‖x‖", "sublayer", scale="log", leads=True
)
LOST = _over_layers(
    "update.bf16_loss", "Update lost in a bfloat16 stream", "lost", "sublayer", scale="log",
    better="low",
)  # fmt: skip
GRADIENT = _over_layers(
    "gradient.stream", "Gradient at the stream", "‖∂L/∂x_l‖", "stream", scale="log",
    headline="total", leads=True, better="even",
)  # fmt: skip
PARAMETERS = _over_layers(
    "gradient.parameters", "Gradient of a sublayer's parameters", "‖∂L/∂θ‖", "sublayer",
    scale="log", headline="value",
)  # fmt: skip
LOGITS = _over_layers(
    "attention.logit_std", "Spread of the attention logits", "std_j l_ij", "sublayer", scale="log",
    axes=("head",), leads=True,
)  # fmt: skip
OF_LAYERS = (
    STREAM_NORM,
    LARGEST,
    COSINE,
    RATIO,
    LOST,
    GRADIENT,
    PARAMETERS,
    LOGITS,
    WEIGHT_UPDATE,
    SURPRISE,
)
OF_RUN = (LOSS, LEARNING_RATE, GRADIENT_NORM, CLIPPING, LOG_Z)


@dataclass(frozen=True)
class Course:
    """What a run does: its size, and whether it comes apart at the end."""

    layers: int = 24
    samples: int = 200
    every: int = 50
    trouble: bool = True
    seed: int = 0
    run: str = ""
    stack: str = "decoder"

    @property
    def last(self) -> int:
        """The last update."""
        return self.step_of(self.samples - 1)

    @property
    def sick_layer(self) -> int:
        """Where the trouble begins."""
        return max(1, round(0.7 * self.layers))

    @property
    def onset(self) -> int:
        """The update at which the trouble begins."""
        return self.step_of(round(0.9 * (self.samples - 1)))

    def step_of(self, sample: int) -> int:
        """The update of a sample: the first one, then every `every`."""
        return max(1, sample * self.every)

    def sickness(self, step: int) -> float:
        """How ill the run is at this update, in e-foldings: 0 while it is healthy."""
        if not self.trouble or step <= self.onset:
            return 0.0
        return 3.5 * (step - self.onset) / max(1, self.last - self.onset)

    def loss(self, step: int) -> float:
        """The loss of one update."""
        noise = np.random.default_rng((self.seed, step)).normal(0, 0.04)
        grown = 0.16 * math.expm1(self.sickness(step))
        return float(2.2 + 8.0 / (1 + step / 60) ** 0.7 + grown + noise)


def begin(record: Record, course: Course, *, first: int = 1) -> None:
    """Write what a watched run writes before its first update."""
    for quantity in (*OF_RUN, *OF_LAYERS):
        record.describe(quantity)
    record.note(
        "model",
        {"name": "gpt2", "class": "GPT2LMHeadModel", "parameters": 124_439_808, "dtype": "float32"},
    )
    record.note(
        "anatomy",
        {
            "source": "discovery",
            "stacks": {course.stack: {"depth": course.layers, "width": 768, "lanes": 1}},
            "depth": course.layers,
            "sublayers": 2 * course.layers,
            "balance_eps": 0.41,
        },
    )
    note_progress(record, course, step=0, first=first)


def note_progress(
    record: Record, course: Course, *, step: int, first: int = 1, closed: bool = False
) -> None:
    """Write how far the run is."""
    record.note(
        "watch",
        {
            "every": course.every,
            "attempts": [{"run": course.run, "first": first, "time": "2026-11-01T10:00:00+0000"}],
            "steps": step,
            "seconds": 0.31 * step,
            "overhead": {"updates": step, "samples": 1, "share": 0.004},
            "closed": closed,
            "notes": [],
        },
    )


def write_sample(record: Record, course: Course, sample: int) -> None:
    """Write one sample, and the losses of all updates since the one before, in one transaction."""
    step = course.step_of(sample)
    before = 0 if sample == 0 else course.step_of(sample - 1)
    with record.together():
        record.append(readings(course, step))
        record.append(
            Reading(LOSS.name, RUN, "value", course.loss(one), run=course.run, step=one)
            for one in range(before + 1, step + 1)
        )
        for finding, due in warnings(course):
            if before < due <= step:
                record.add_finding(finding)
        note_progress(record, course, step=step)


def readings(course: Course, step: int) -> Iterator[Reading]:
    """The readings of one sample, but for the loss."""
    rng = np.random.default_rng((course.seed, step, 1))
    ill = course.sickness(step)
    done = step / course.last

    def near(value: float, noise: float = 0.03) -> float:
        return float(value * np.exp(rng.normal(0, noise)))

    def row(quantity: Quantity, site: Site, value: float, statistic: str = "") -> Reading:
        return Reading(
            quantity.name, site, statistic or quantity.headline, value, run=course.run, step=step
        )

    warm = min(1.0, step / (0.05 * course.last))
    yield row(LEARNING_RATE, RUN, 6e-4 * warm * (0.55 + 0.45 * math.cos(math.pi * done)))
    norm = near(0.6 + 2.0 / (1 + step / 300)) * math.exp(1.1 * ill)
    yield row(GRADIENT_NORM, RUN, norm)
    yield row(CLIPPING, RUN, min(1.0, 1.0 / norm))
    yield row(LOG_Z, RUN, 1.2 + 3.0 * done + rng.normal(0, 0.05))
    for l in range(course.layers + 1):
        stream = Site(course.stack, l)
        # Whatever is written at the sick layer is in the stream from there on.
        behind = ill if l >= course.sick_layer else 0.0
        size = (3.0 + 1.4 * l**0.9) * (1 + 0.8 * done)
        yield row(STREAM_NORM, stream, near(size) * math.exp(0.25 * behind))
        yield row(STREAM_NORM, stream, near(0.97 * size), "median")
        yield row(LARGEST, stream, near(4 * size, 0.1) * math.exp(0.5 * behind))
        yield row(COSINE, stream, min(0.99, 0.15 + 0.012 * l + 0.1 * done + 0.06 * behind))
        away = (course.layers - l) / course.layers
        yield row(GRADIENT, stream, near(0.05 * (1 + 2 * away) / (1 + done)) * math.exp(0.9 * ill))
        for sublayer, role in ((1, "attention"), (2, "mlp")):
            if l == 0:
                continue
            write = Site(course.stack, l, sublayer, role)
            sick = ill if (l, role) == (course.sick_layer, "attention") else 0.15 * behind
            ratio = near(0.5 / (1 + l) ** 0.5 / (1 + 0.5 * done))
            yield row(RATIO, write, ratio * math.exp(0.6 * sick))
            yield row(RATIO, write, 0.98 * ratio, "median")
            yield row(LOST, write, near(0.004 / ratio))
            yield row(PARAMETERS, write, near(0.1 / (1 + l / 8)) * math.exp(0.8 * sick))
            yield row(WEIGHT_UPDATE, write, near(1.5e-3 * warm) * math.exp(0.4 * sick))
            yield row(SURPRISE, write, near(1.0, 0.08) * math.exp(0.5 * sick))
            if role == "attention":
                spread = near(1.1 + 0.8 * done) * math.exp(sick)
                yield row(LOGITS, write, spread)
                for head in (1, 2):
                    one = Site(course.stack, l, sublayer, role, head=head)
                    yield row(LOGITS, one, head * spread)
    embedding = Site(OUTSIDE, 0, point="transformer.wte.weight")
    yield row(WEIGHT_UPDATE, embedding, near(8e-4 * warm))
    yield row(SURPRISE, embedding, near(1.1))


def warnings(course: Course) -> list[tuple[Finding, int]]:
    """The warnings of a run that comes apart, with the update at which each is due."""
    if not course.trouble:
        return []
    layer, length = course.sick_layer, course.last - course.onset
    logits_due, loss_due = course.onset + length // 4, course.onset + (3 * length) // 4
    logits = Finding(
        f"The attention logits of layer {layer} have grown 2.4 times since step {course.onset}.",
        LOGITS.name,
        severity="warning",
        code="G90",
        name="logits-grow",
        details={
            "stack": course.stack,
            "layers": [layer],
            "sublayer": "attention",
            "step": logits_due,
            "since": course.onset,
            "evidence": [
                {"what": "spread of the logits", "value": 4.3, "expected": 1.8, "source": "its past"}
            ],
            "ruled_out": [],
            "cause": "queries and keys grow without a norm",
            "remedy": {"words": "Lower the learning rate, or add QK-norm and go back to an earlier "
                       "checkpoint.", "safe": False},
            "confidence": "likely",
        },
    )  # fmt: skip
    loss = Finding(
        "The loss has risen for 200 updates and stands 1.3 above its lowest level.",
        LOSS.name,
        severity="serious",
        code="G91",
        name="loss-rises",
        details={
            "step": loss_due,
            "since": course.onset + length // 2,
            "evidence": [],
            "ruled_out": [],
            "cause": "updates are too large for the weights",
            "remedy": {
                "words": "Stop, and go back to the last checkpoint before it.",
                "safe": True,
            },
            "confidence": "likely",
        },
    )
    return [(logits, logits_due), (loss, loss_due)]


def watch_record(course: Course | None = None, *, closed: bool = True) -> Record:
    """A watched run in memory, with all of its samples."""
    course = course or Course()
    record = Record()
    begin(record, course)
    with record.together():
        for sample in range(course.samples):
            write_sample(record, course, sample)
        note_progress(record, course, step=course.last, closed=closed)
    return record


def growing_file(path: Path | str, course: Course, *, journal: Any = "delete") -> Record:
    """Start a file that grows, as a watch does."""
    record = Record.create(path, journal=journal)
    begin(record, course)
    return record


def main() -> None:
    """Write a file that grows, sample by sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--journal", default="delete")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two samples")
    parser.add_argument("--ask", action="store_true", help="write a sample per line of the input")
    asked = parser.parse_args()
    course = Course(asked.layers, asked.samples, asked.every, trouble=not asked.healthy)
    record = growing_file(asked.file, course, journal=asked.journal)
    print("ready", flush=True)
    for sample in range(course.samples):
        if asked.ask and not sys.stdin.readline():
            break
        if asked.pause:
            threading.Event().wait(asked.pause)
        write_sample(record, course, sample)
        print(f"sample {sample} at step {course.step_of(sample)}", flush=True)
    note_progress(record, course, step=course.last, closed=True)
    record.close()
    print("closed", flush=True)


if __name__ == "__main__":
    main()
