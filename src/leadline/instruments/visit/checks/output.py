"""What a model predicts: loss, log Z and mean logit, beside ln V and the frequencies of the inputs.

    log Z       log of the sum of exp(logit) over the vocabulary; ln V for logits that are all 0
    unigram     entropy of the frequencies of the very ids of the batch, with the correction of
                Miller and Madow for few samples, (types - 1) / (2 tokens), and its standard error

Rules about what a trained model predicts need natural language. Texts are; ids that were handed over
are taken for it where their frequencies are as uneven as those of language and no sequence is
repeated: see `is_natural`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from leadline.instruments.passes.output_head import head_of
from leadline.instruments.visit.check import CouldNot, VisitEntry, VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs import Inputs, choose_loss
from leadline.models.inputs.logits import HeadFacts, find_logits
from leadline.models.inputs.model_facts import ids_name, is_pair

LEAST_TOKENS = 48
"""Frequencies of fewer tokens say nothing about their kind."""


@check("output", facts=("output", "unigram", "natural_input"), pass_cost=0.1)
def output(patient: Patient) -> Iterator[VisitEntry]:
    """Compare loss and logits with a uniform guess, and tell what the frequencies of the ids allow."""
    ids = _ids_to_predict(patient, patient.batch)
    if ids is None:
        yield CouldNot(("output", "unigram", "natural_input"), "the model takes no token ids")
        return
    mask = patient.batch.decoder_mask if is_pair(patient.model) else patient.batch.mask
    tokens = ids.flatten() if mask is None else ids[mask.bool()]
    yield VisitFact("unigram", unigram_entropy(tokens))
    yield VisitFact("natural_input", patient.batch.kind == "text" or is_natural(tokens))
    facts = output_facts(patient)
    if facts is None:
        yield CouldNot(("output",), "the model returns no logits over its vocabulary")
        return
    if patient.twin is not None:
        twin = output_facts(patient, twin=True)
        facts["twin"] = twin
    yield VisitFact("output", facts)


def output_facts(patient: Patient, *, twin: bool = False) -> dict[str, object] | None:
    """Loss and logits of one small pass; None without logits over a vocabulary."""
    model = patient.twin if twin else patient.model
    assert model is not None
    small = patient.small
    ids = _ids_to_predict(patient, small)
    assert ids is not None
    shape = tuple(ids.shape)
    if patient.anatomy is None:
        # Of a model whose blocks are unknown, logits for every token are taken for the next one's.
        head = HeadFacts((*shape, 0), shape[1], causal=True)
    else:
        head, _ = head_of(model, small, patient.anatomy, "auto", 0)
    loss, batch = choose_loss(model, small, "auto", head=head)
    result = patient.result(batch, model)
    with torch.no_grad():
        logits = find_logits(result, model, shape)
        if logits is None:
            return None
        real = logits.float()
        mask = small.decoder_mask if is_pair(model) else small.mask
        if mask is not None and real.shape[1] == mask.shape[1]:
            real = real[mask.bool()]
        log_z = torch.logsumexp(real, dim=-1)
        predicts = loss.kind in ("next-token", "masked")
        value = float(loss.compute(result, batch)) if predicts else None
    return {
        "loss_kind": loss.kind,
        "loss": value,
        "vocabulary": logits.shape[-1],
        "uniform": math.log(logits.shape[-1]),
        "log_z": float(log_z.mean()),
        "mean_logit": float(real.mean()),
        "logit_spread": float(real.std(dim=-1).mean()),
        "not_finite": float((~torch.isfinite(real)).float().mean()),
    }


def _ids_to_predict(patient: Patient, batch: Inputs) -> Tensor | None:
    name = "decoder_input_ids" if is_pair(patient.model) else ids_name(patient.model)
    ids = batch.tensors.get(name)
    return ids if ids is not None and not ids.is_floating_point() and ids.ndim == 2 else None


def unigram_entropy(tokens: Tensor) -> dict[str, float]:
    """The entropy in nats of the frequencies of ids, corrected for few samples."""
    counts = torch.unique(tokens.cpu(), return_counts=True)[1].double()
    total = float(counts.sum())
    shares = counts / total
    surprise = -shares.log()
    entropy = float((shares * surprise).sum())
    variance = float((shares * surprise.square()).sum()) - entropy**2
    return {
        "entropy": entropy + (len(counts) - 1) / (2 * total),
        "error": math.sqrt(max(variance, 0.0) / total),
        "tokens": total,
        "types": float(len(counts)),
    }


def is_natural(tokens: Tensor) -> bool:
    """Whether ids look like language: uneven frequencies, and an order that does not repeat itself.

    Uniform draws among as many ids as would show as many different ones have a known entropy; that
    of language is smaller by 0.1 nats and more (512 tokens of English: 0.3 to 0.6 for words and
    pieces of words, 0.7 for bytes), that of drawn ids lies within 0.03. Sequences of draws that are
    repeated have no more pairs of neighbours than ids.
    """
    tokens = tokens.flatten().cpu()
    total, types = tokens.numel(), len(tokens.unique())
    if total < LEAST_TOKENS or types < 8 or types > 0.95 * total:
        return False
    pairs = len(torch.stack([tokens[:-1], tokens[1:]], 1).unique(dim=0))
    if pairs < 1.3 * types:
        return False
    choices = _choices_that_show(types, total)
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randint(choices, (total,), generator=generator) for _ in range(8)]
    even = torch.tensor([unigram_entropy(draw)["entropy"] for draw in draws])
    limit = max(0.1, 5 * float(even.std()))
    return unigram_entropy(tokens)["entropy"] < float(even.mean()) - limit


def _choices_that_show(types: int, total: int) -> int:
    """Among how many ids so many uniform draws show so many different ones."""
    low, high = types, 100 * total
    while low < high:
        middle = (low + high) // 2
        if middle * -math.expm1(total * math.log1p(-1 / middle)) < types:
            low = middle + 1
        else:
            high = middle
    return low
