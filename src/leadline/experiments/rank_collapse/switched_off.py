"""Residual by layer of a trained model, with skip and MLP switched off one at a time.

After figure 2 of Dong, Cordonnier and Loukas 2021, arXiv 2103.03404, who drew the relative residual
|res X|_F / |X|_F of trained models and of the same models without skip, without MLP and without
both. The model becomes a `Transformer`, whose parts can be taken away with all other weights kept,
and is followed without cancellation; the plain forward pass in the model's own precision is shown
where it differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leadline.errors import InputError, LeadlineError, Progress, no_progress
from leadline.experiments.materials.sentences import random_rows, sentence_rows
from leadline.experiments.outcome.outcome import Outcome
from leadline.instruments.collapse.measure import compute_collapse
from leadline.models.inputs import vocabulary_size
from leadline.models.loading import LoadedModel
from leadline.parts import Transformer
from leadline.reading.show.panels import Line

__all__ = ["SWITCHES", "switched_off"]

SWITCHES: dict[str, dict[str, str]] = {
    "as trained": {},
    "MLP off": {"mlp": "none"},
    "skip off": {"connection": "none"},
    "skip and MLP off": {"mlp": "none", "connection": "none"},
}
Curve = NDArray[np.float64]


def switched_off(
    models: Mapping[str, Callable[[], LoadedModel]],
    *,
    tokens: int = 32,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Outcome:
    """The relative residual by layer of each model, as trained and with parts switched off."""
    if tokens < 2:
        raise InputError(f"{tokens} token was asked for; a residual needs two at least.")
    lines: list[Line] = []
    remarks: list[str] = []
    failures: dict[str, str] = {}
    steps = len(models) * len(SWITCHES)
    for number, (name, load) in enumerate(models.items()):
        at = number * len(SWITCHES)
        progress(name, at, steps)
        try:
            loaded = load()
            model = _ours(loaded.model)
            ids, what = _ids(loaded, tokens, seed)
            for index, (switch, changes) in enumerate(SWITCHES.items()):
                progress(f"{name}, {switch}", at + index, steps)
                lines += _lines(name, switch, model.with_(**changes), ids)
        except LeadlineError as error:
            if len(models) == 1:
                raise
            failures[name] = str(error)
            continue
        remarks += _remarks(name, model, what, [line for line in lines if line.panel == name])
    if failures and not lines:
        name, why = next(iter(failures.items()))
        raise InputError(f"No model could be followed. {name}: {why}")
    return Outcome(
        experiment="rank-collapse",
        title="Relative residual by layer, parts switched off one at a time",
        value_label="log₁₀ |res X|_F / |X|_F",
        lines=tuple(lines),
        remarks=tuple(remarks),
        records={},
        failures=failures,
        start=0,
        scales=dict.fromkeys(dict.fromkeys(line.panel for line in lines), "exponent"),
        captioned=True,
    )


def _ours(model: Any) -> Transformer:
    return model if isinstance(model, Transformer) else Transformer.from_hf(model)


def _ids(loaded: LoadedModel, tokens: int, seed: int) -> tuple[torch.Tensor, str]:
    if loaded.tokenizer is not None:
        rows, texts = sentence_rows([tokens], loaded.tokenizer, seed=seed)
        return torch.tensor(rows), f"{len(rows[0])} tokens of drawn words: {texts[0][:40]} ..."
    vocabulary = vocabulary_size(loaded.model)
    if vocabulary is None:
        raise InputError(f"{loaded.name} takes no tokens; this experiment needs some.")
    rows = random_rows([tokens], vocabulary=vocabulary, seed=seed)
    return torch.tensor(rows), f"{tokens} random tokens"


def _lines(name: str, switch: str, model: Transformer, ids: torch.Tensor) -> Iterator[Line]:
    found = compute_collapse(model, ids)
    true = found.log10_relative
    facts = {"model": switch, "error": float(found.error.max())}
    yield Line(name, switch, tuple(true.tolist()), facts=facts)
    plain = _plain(model, ids)
    if np.any(np.abs(plain - true) > math.log10(2)):
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        label = f"{switch}, in {dtype}"
        yield Line(name, label, tuple(plain.tolist()), faint=True, facts=facts)


@torch.no_grad()
def _plain(model: Transformer, ids: torch.Tensor) -> Curve:
    """The relative residual that an ordinary forward pass shows."""
    found: list[float] = []

    def note(_module: Any, _arguments: Any, stream: Any) -> None:
        apart = (stream - stream.mean(1, keepdim=True)).norm().double()
        found.append(float(torch.log10(apart / stream.norm().double())))

    handles = [part.register_forward_hook(note) for part in (model.embedding, *model.blocks)]
    try:
        model.stream(ids)
    finally:
        for handle in handles:
            handle.remove()
    return np.array(found)


def _remarks(name: str, model: Transformer, what: str, lines: list[Line]) -> Iterator[str]:
    mask = "causal" if model.causal else "no mask"
    exact = {line.name: line for line in lines if not line.faint}
    ends = ", ".join(
        f"{switch} 10^{line.values[-1]:.4g}" for switch, line in exact.items() if line.values
    )
    yield f"{name} ({mask}; {what}): relative residual after the last layer: {ends}."
    worst = max(line.facts["error"] for line in lines)
    yield f"{name}: relative error of the residuals, estimated: at most {worst:.1e}."
