"""A small model is adapted to a second task, with residual weights 1 and 4.

As in the experiment `fine-tuning`: x' = r x + u, in pre-norm as x + u / r, which is the same up to
a factor of the stream that the next norm takes away, and in post-norm as N(r x + u). The base is
trained on a text, then adapted to the same text read backwards: with LoRA, with bottleneck
adapters, with all weights, and with all weights on both tasks by turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from leadline.claims.catalog import Trial

if TYPE_CHECKING:
    from leadline.experiments.fine_tuning.adapting import Tuning
    from leadline.parts import Transformer

__all__ = ["ADAPTERS", "DESIGNS", "LORA", "STRONG"]

DESIGNS = ("pre-norm", "post-norm")
STRONG = 4.0
"""The residual weight that is set beside 1."""


def _each(
    seed: int, look: Callable[[Transformer, Tuning], dict[str, float]]
) -> dict[str, dict[str, dict[str, float]]]:
    """What `look` finds in every base, by design and by weight."""
    from leadline.experiments.fine_tuning.adapting import Tuning
    from leadline.experiments.fine_tuning.experiment import ADAPTER_RATE, RATE, Setting
    from leadline.experiments.fine_tuning.two_tasks import Backwards
    from leadline.lab.cell import torch_threads
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for

    setting = Setting(
        depth=4, width=32, heads=2, length=32, base=400, steps=150, batch=16, examples=128, rank=4
    )
    old = build_task(f"stdlib(length={setting.length})")
    tuning = Tuning(
        old,
        Backwards(old),
        steps=setting.steps,
        batch=setting.batch,
        examples=setting.examples,
        rank=setting.rank,
        rate=ADAPTER_RATE,
        seed=seed,
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    with torch_threads(1):
        for design in DESIGNS:
            for weight in (1.0, STRONG):
                model = model_for(setting.recipe(design, weight), old, seed=seed)
                tuning.train(model, old, steps=setting.base, rate=RATE)
                found.setdefault(design, {})[f"{weight:g}"] = look(model, tuning)
    return found


def _adapted(model: Transformer, tuning: Tuning, method: str) -> dict[str, float]:
    from leadline.experiments.fine_tuning.adapting import adapted, losses

    (base,) = losses(model, tuning.old.validation(tuning.examples))
    one = adapted(model, tuning, method=method, base=base)
    return {
        "base": base,
        "before": one.new_before,
        "after": one.new_after,
        "ratio": one.heard.ratio,
        "output": one.heard.output,
    }


def _all_weights(model: Transformer, tuning: Tuning) -> dict[str, float]:
    from leadline.experiments.fine_tuning.adapting import together
    from leadline.experiments.fine_tuning.experiment import RATE

    pair = together(model, tuning, rate=RATE)
    return {
        "old_alone": pair.old_alone,
        "new_alone": pair.new_alone,
        "old_both": pair.old_both,
        "new_both": pair.new_both,
    }


def _lora(seed: int) -> Mapping[str, Any]:
    return _each(seed, lambda model, tuning: _adapted(model, tuning, "LoRA"))


def _adapters(seed: int) -> Mapping[str, Any]:
    def look(model: Transformer, tuning: Tuning) -> dict[str, float]:
        return {**_adapted(model, tuning, "adapters"), **_all_weights(model, tuning)}

    return _each(seed, look)


LORA = Trial("LoRA by residual weight", _lora, seconds=20.0)
ADAPTERS = Trial("adapters and two tasks by residual weight", _adapters, seconds=30.0)
