"""What the loss would be if the weights were read otherwise: a few small passes over text.

Rotary positions turn features in pairs, either feature i with i + half or 2 i with 2 i + 1. Whichever the code
does, a model that was trained predicts better with its own order, so that one pass with the rows of
queries and keys in the other order tells. Where text is predicted worse than by counting its tokens,
layers are exchanged in pairs and square output matrices transposed as well: no healthy model comes to that.
Weights are exchanged by reference and put back; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import SeenAttention
from leadline.anatomy.tap.projections import Source
from leadline.instruments.passes.output_head import head_of
from leadline.instruments.passes.running import call
from leadline.instruments.visit.checks.output import is_natural, unigram_entropy
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import choose_loss

__all__ = ["loss_trials"]

MOST_LAYERS = 12
"""Of a stack of more layers no pairs are exchanged: there would be too many."""

Trial = dict[str, Any]


def loss_trials(
    patient: Patient,
    attentions: Sequence[SeenAttention],
    outputs: Sequence[str],
    name_of: Callable[[Source | None], str],
) -> dict[str, Any] | None:
    """The loss as it is and with what was tried; None where the inputs are no text to predict.

    `outputs` are the parameters behind the heads; `name_of` tells the parameter of a source.
    """
    ids = patient.ids
    if patient.anatomy is None or ids is None:
        return None
    whole = patient.batch.main
    if patient.batch.kind != "text" and not is_natural(whole):
        return None
    head, _ = head_of(patient.model, patient.small, patient.anatomy, "auto", 0)
    loss, batch = choose_loss(patient.model, patient.small, "auto", head=head)
    if loss.kind not in ("next-token", "masked"):
        return None

    def measure() -> float:
        return float(loss.compute(call(patient.model, batch), batch))

    base, entropy = measure(), unigram_entropy(whole.flatten())["entropy"]
    tried: list[Trial] = []
    with _other_pairs(patient.model, attentions, name_of) as changed:
        if changed:
            tried.append({"what": "rotary pairs", "parameters": changed, "loss": measure()})
    if base > entropy:
        tried += _exchanges(patient, measure)
        tried += _transposes(patient.model, outputs, measure)
    return {"loss": base, "unigram": entropy, "tried": tried}


def _exchanges(patient: Patient, measure: Callable[[], float]) -> Iterator[Trial]:
    """The best exchange of two layers of every stack."""
    for stack, paths in patient.rows.items():
        blocks = [dict(patient.model.get_submodule(path).named_parameters()) for path in paths]
        if not 2 < len(blocks) <= MOST_LAYERS or len(set(paths)) < len(paths):
            continue
        trials: list[Trial] = []
        for one, other in combinations(range(len(blocks)), 2):
            if {k: p.shape for k, p in blocks[one].items()} != {
                k: p.shape for k, p in blocks[other].items()
            }:
                continue
            pairs = [(p, blocks[other][name]) for name, p in blocks[one].items()]
            _exchange(pairs)
            try:
                trials.append(
                    {"what": "layers exchanged", "stack": stack, "layers": [one + 1, other + 1]}
                    | {"loss": measure()}
                )
            finally:
                _exchange(pairs)
        yield from sorted(trials, key=lambda trial: trial["loss"])[:1]


def _exchange(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for one, other in pairs:
        one.data, other.data = other.data, one.data


def _transposes(
    model: nn.Module, outputs: Sequence[str], measure: Callable[[], float]
) -> Iterator[Trial]:
    """The best transposition of a square matrix behind the heads."""
    trials: list[Trial] = []
    for name in outputs:
        weight = model.get_parameter(name)
        if weight.ndim != 2 or weight.shape[0] != weight.shape[1]:
            continue
        kept = weight.data
        weight.data = kept.T
        try:
            trials.append({"what": "transposed", "parameters": [name], "loss": measure()})
        finally:
            weight.data = kept
    yield from sorted(trials, key=lambda trial: trial["loss"])[:1]


@contextmanager
def _other_pairs(
    model: nn.Module, attentions: Sequence[SeenAttention], name_of: Callable[[Source | None], str]
) -> Iterator[list[str]]:
    """Queries and keys with their rows in the order of the other pairing; yields what is changed."""
    changed: list[str] = []
    with ExitStack() as hooks:
        for attention in attentions:
            for source, vectors in (
                (attention.query_source, attention.query),
                (attention.key_source, attention.key),
            ):
                if source is None or not source.turned or vectors is None:
                    continue
                name = name_of(source)
                width = vectors.shape[-1]
                if source.weight is None:
                    module = model.get_submodule(source.module)
                    order = _other_order(width, width)
                    if order is None or source.features[0].stop != width:
                        continue
                    handle = module.register_forward_pre_hook(_entering(order))
                elif name:
                    module = model.get_submodule(name.rpartition(".")[0])
                    order = _other_order(_turned_width(source, vectors), width)
                    if order is None:
                        continue
                    handle = module.register_forward_hook(_leaving(order, source.features))
                else:
                    continue
                hooks.callback(handle.remove)
                changed.append(name or source.module)
        yield changed


def _turned_width(source: Source, vectors: Tensor) -> int:
    """How many features of a head are turned: the first ones, by what differs from the product."""
    assert source.weight is not None and source.entered is not None
    width = source.weight.shape[1]
    entered = source.entered.reshape(vectors.shape[0], vectors.shape[2], -1).double()
    plain = torch.einsum("etw,hdw->ehtd", entered, source.weight)
    if source.bias is not None:
        plain = plain + source.bias[:, None]
    if plain.shape != vectors.shape:
        return width
    apart = (plain - vectors.double()).abs().amax((0, 1, 2))
    moved = (apart > 1e-5 * float(vectors.abs().max())).nonzero().flatten()
    return int(moved.max()) + 1 if len(moved) else 0


def _other_order(turned: int, width: int) -> Tensor | None:
    """Rows as a model that turns halves would find them if they were stored as neighbours."""
    if turned < 4 or turned % 2:
        return None
    order = torch.arange(turned).view(-1, 2).t().flatten()
    return torch.cat([order, torch.arange(turned, width)])


def _entering(order: Tensor) -> Callable[..., Any]:
    def hook(_module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (arguments[0][..., order.to(arguments[0].device)], *arguments[1:])

    return hook


def _leaving(order: Tensor, features: Sequence[slice]) -> Callable[..., Any]:
    def hook(_module: nn.Module, _arguments: Any, output: Tensor) -> Tensor:
        places = torch.arange(output.shape[-1])
        for rows in {one.start: one for one in features}.values():
            places[rows] = rows.start + order
        return output[..., places.to(output.device)]

    return hook
