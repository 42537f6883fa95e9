"""Does a strong residual keep a model from being adapted?

The notes say when a residual connection can hurt: in multitask fine-tuning old tasks keep flowing
through the residual path and hinder adaptation; an adapter may not manage to compensate the main
signal; in LoRA a too strong residual keeps the change from influencing the output. None of it is
measured there. Here the weight r of the stream changes, x' = r x + u, in two designs:

    post-norm   N(r x + u)      the connection lambda_skip(value=r)
    pre-norm    x + u / r       the connection weighted(alpha=1/r): r x + u up to a factor of the
                                stream, which the norm before the next branch takes away

A byte-level model is trained on a text with each r, or trained with r = 1 and changed to r
afterwards. It is then adapted to the same text read backwards: with LoRA and with bottleneck
adapters, all other weights frozen, and with all weights, on the new task alone and on both by
turns. What is said about r is the rank correlation of Spearman over the weights, one per seed: a
statement counts where it is at least 0.6, or at most -0.6, in all of them. Weights with which the base learns
little more than the frequencies of the bytes are left out of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from leadline.errors import Progress, no_progress, require
from leadline.experiments.fine_tuning import DESIGNS, FineTuningOptions
from leadline.experiments.fine_tuning.adapting import (
    METHODS,
    Adapted,
    Together,
    Tuning,
    adapted,
    losses,
    together,
)
from leadline.experiments.fine_tuning.text import remarks, tables
from leadline.experiments.fine_tuning.two_tasks import Backwards
from leadline.experiments.outcome.outcome import Outcome
from leadline.lab.tasks import build_task
from leadline.lab.trainer import model_for
from leadline.parts import Transformer
from leadline.reading.show.panels import Line

__all__ = ["DESIGNS", "fine_tuning"]

RATE, ADAPTER_RATE = 1e-3, 3e-3
"""Learning rates of all weights and of adapters."""


@dataclass
class Findings:
    """All that was measured; lists run over the seeds."""

    adapted: dict[tuple[str, str, str, float], list[Adapted]] = field(
        default_factory=dict[tuple[str, str, str, float], list[Adapted]]
    )
    """By design, way ("trained" with r or "changed" to it), method and weight."""
    together: dict[tuple[str, float], list[Together]] = field(
        default_factory=dict[tuple[str, float], list[Together]]
    )
    """By design and weight."""
    plain: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """The loss on the old task of the base with weight 1, by design and seed."""


def fine_tuning(
    options: FineTuningOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """What a model with a stronger residual learns of a second task, with adapters and without."""
    options = options or FineTuningOptions()
    options.check()
    require("peft", extra="tune")
    old = build_task(f"stdlib(length={options.length})")
    found = Findings()
    total = len(DESIGNS) * options.seeds * len(options.weights)
    done = 0
    for design, fields in DESIGNS.items():
        for one in (1000 * options.seed + number for number in range(options.seeds)):
            tuning = Tuning(
                old,
                Backwards(old),
                steps=options.steps,
                batch=options.batch,
                examples=options.examples,
                rank=options.rank,
                rate=ADAPTER_RATE,
                seed=one,
            )
            plain = _base(options, design, 1.0, tuning)
            (found.plain[design, one],) = losses(plain, old.validation(options.examples))
            for weight in options.weights:
                progress(f"{design}, residual weight {weight:g}, seed {one}", done, total)
                base = plain if weight == 1.0 else _base(options, design, weight, tuning)
                changed = plain.with_(**fields(weight))
                _adapt(found, {"trained": base, "changed": changed}, design, weight, tuning)
                done += 1
    return Outcome(
        experiment="fine-tuning",
        title="What adapters change of the updates, over the stream, by residual weight",
        value_label="|change of the update| / |stream|",
        lines=tuple(_lines(found)),
        remarks=tuple(
            remarks(
                found.adapted,
                found.together,
                unigram=old.entropies(options.examples).unigram,
            )
        ),
        records={},
        tables=tuple(tables(found.adapted, found.together)),
    )


def _base(options: FineTuningOptions, design: str, weight: float, tuning: Tuning) -> Transformer:
    """A model trained on the old task."""
    model = model_for(options.recipe(design, weight), tuning.old, seed=tuning.seed)
    tuning.train(model, tuning.old, steps=options.base, rate=RATE)
    return model


def _adapt(
    found: Findings,
    models: Mapping[str, Transformer],
    design: str,
    weight: float,
    tuning: Tuning,
) -> None:
    """Adapt the model that was trained with a weight, and the one that was changed to it."""
    pair = together(models["trained"], tuning, rate=RATE)
    found.together.setdefault((design, weight), []).append(pair)
    for way, model in models.items():
        for method in METHODS:
            place = design, way, method, weight
            if way == "changed" and weight == 1.0:
                one = found.adapted[design, "trained", method, weight][-1]
            else:
                base = pair.old_before if way == "trained" else found.plain[design, tuning.seed]
                one = adapted(model, tuning, method=method, base=base)
            found.adapted.setdefault(place, []).append(one)


def _lines(found: Findings) -> Iterator[Line]:
    """The update ratio by layer, of the models that were trained with their weight."""
    for (design, way, method, weight), seeds in found.adapted.items():
        if way == "trained":
            name = f"residual weight {weight:g}"
            facts = {"model": name, "weight": weight, "method": method, "design": design}
            layers: Sequence[tuple[float, ...]] = list(
                zip(*(one.heard.ratios for one in seeds), strict=True)
            )
            values = tuple(statistics.fmean(layer) for layer in layers)
            yield Line(f"{design}, {method}", name, values, facts=facts)
