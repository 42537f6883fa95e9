"""Do matrices that multiply each other belong together? Read off the weights alone.

Where two matrices meet in a product, gradient flow conserves the difference of their Gram matrices,
and weight decay shrinks it (Arora, Cohen and Hazan 2018; Du, Hu and Lee 2018): training makes the two
alike, whatever was learnt. For the values V and the output matrix O of head h, and for the queries Q
and keys K of a head that nothing turns between them:

    V_h V_h^T  ~  O_h^T O_h         Q_h Q_h^T  ~  K_h K_h^T

The correlation of their entries off the diagonal is near 1 after training and 0 +- 1 / sqrt(entries)
between strangers. Of an MLP, whose activation lets only the scale of each unit through, the logarithms
of the norms of a unit's row of W_1 and column of W_2 are compared.

A matrix of another layer, a transposed one, heads in another order, and keys in place of values are
found by the same number, for the partner that does fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.anatomy import AttentionSpy, SeenAttention
from leadline.anatomy.tap.output_projection import ACTIVATIONS, BranchProducts
from leadline.anatomy.tap.projections import Source, WeightProduct
from leadline.instruments.passes.running import call
from leadline.instruments.visit.check import CouldNot, VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.trials import loss_trials

__all__ = ["wiring"]

_NAMES = ("wiring", "trials")
_LIKE = 1e-4
"""Activations are recognised to this share of their size."""
_SAMPLED = 4
"""So many tokens are enough to recognise an activation."""


@dataclass
class _Pair:
    """Two matrices that meet, as vectors that training makes alike, with their parameters."""

    kind: str
    stack: str
    layer: int
    first: str
    second: str
    ours: Tensor
    theirs: Tensor
    others: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Other readings of the second matrix, or other partners, by what they would mean."""
    heads: tuple[Tensor, Tensor] | None = None
    """Values of every group of heads and what every head writes, [head, entry]."""


class _KeptProducts(BranchProducts):
    """Keeps every product of a pass; small inputs, so that this is little."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[WeightProduct] = []

    def product(self, product: WeightProduct) -> None:
        self.products.append(product)


@check("wiring", facts=_NAMES, pass_cost=0.2)
def wiring(patient: Patient) -> Iterator[VisitFact | CouldNot]:
    """How alike the matrices are that meet, for every layer; of trained models only."""
    if is_fresh(patient.model):
        yield CouldNot(_NAMES, "the weights are as drawn: no two matrices know each other yet")
        return
    pairs: list[_Pair] = []
    kept = _KeptProducts()
    names = {p.data_ptr(): name for name, p in patient.model.named_parameters()}
    attentions: list[tuple[SeenAttention, int]] = []

    def listen(attention: SeenAttention) -> None:
        attentions.append((attention, len(kept.products)))

    examples = patient.small.main.shape[0] if patient.small.main.ndim else None
    with (
        torch.no_grad(),
        AttentionSpy(patient.model, listen, examples=lambda: examples, branches=kept),
    ):
        call(patient.model, patient.small)
    with torch.no_grad():
        meets = _Meetings(patient, kept.products, names)
        for attention, count in attentions:
            pairs += meets.of_attention(attention, count)
        pairs += meets.of_mlps()
        yield VisitFact("wiring", _entries(pairs))
        outputs = [pair.second for pair in pairs if pair.kind == "values"]
        tried = loss_trials(patient, [one for one, _ in attentions], outputs, meets.name_of)
    if tried is None:
        yield CouldNot(("trials",), "the inputs are no text that the model predicts")
    else:
        yield VisitFact("trials", tried)


def is_fresh(model: nn.Module) -> bool:
    """Whether biases and gains are the constants that they start as; False where there are none."""
    vectors = [p for p in model.parameters() if p.ndim == 1 and p.numel() > 1]
    constant = sum(bool((p == p[0]).all()) for p in vectors)
    return bool(vectors) and constant >= 0.8 * len(vectors)


@dataclass
class _Meetings:
    """Finds the matrices that meet in a pass, from its products and nothing else."""

    patient: Patient
    products: list[WeightProduct]
    names: dict[int, str]

    def of_attention(self, attention: SeenAttention, count: int) -> Iterator[_Pair]:
        """Values and output, and queries and keys where nothing turns them."""
        query, key, value = (
            _rows(one) for one in (attention.query_source, attention.key_source, attention.value_source)
        )  # fmt: skip
        output = self._output(attention, count)
        if value is not None and output is not None:
            weight, name = output
            # [head, head width, width]: what each feature of a head writes
            columns = weight.unflatten(0, (attention.heads, -1))
            written, values = _grams(columns, len(value)), _grams(value, len(value))
            pair = self._pair("values", name, attention.value_source, values, written)
            if pair is not None:
                if len(columns) > 1:
                    pair.heads = _entries_of(values), _entries_of(columns @ columns.mT)
                if weight.shape[0] == weight.shape[1]:
                    turned = _grams(weight.T.unflatten(0, (attention.heads, -1)), len(value))
                    pair.others["transposed"] = _off(turned)
                if key is not None and key.shape == value.shape:
                    pair.others["keys"] = _off(_grams(key, len(key)))
                yield pair
        unturned = not (_is_turned(attention.query_source) or _is_turned(attention.key_source))
        if query is not None and key is not None and unturned:
            name = self.name_of(attention.key_source)
            pair = self._pair(
                "queries", name, attention.query_source,
                _grams(query, len(key)), _grams(key, len(key)),
            )  # fmt: skip
            if pair is not None:
                yield pair

    def _pair(
        self, kind: str, second: str, source: Source | None, ours: Tensor, theirs: Tensor
    ) -> _Pair | None:
        first = self.name_of(source)
        site = self.patient.site(second)
        if not first or not second or site.layer == 0 or ours.shape != theirs.shape:
            return None
        if self.patient.site(first).layer != site.layer:
            return None
        return _Pair(kind, site.stack, site.layer, first, second, _off(ours), _off(theirs))

    def _output(self, attention: SeenAttention, count: int) -> tuple[Tensor, str] | None:
        """The matrix [in, out] that gets the heads side by side, and its parameter."""
        if attention.output.ndim != 4 or attention.output.shape[1] != attention.heads:
            return None
        joined = attention.output.transpose(1, 2).flatten(2)
        for product in self.products[count : count + 3]:
            entered = product.entered
            if entered.numel() == joined.numel() and torch.equal(
                entered.reshape(joined.shape), joined.to(entered.dtype)
            ):
                return product.matrix.float(), self.names.get(product.weight.data_ptr(), "")
        return None

    def name_of(self, source: Source | None) -> str:
        """The parameter whose rows a source has."""
        if source is None or source.weight is None or source.entered is None:
            return ""
        row = source.weight[0, 0].float()
        for product in self.products:
            if product.entered.data_ptr() != source.entered.data_ptr():
                continue
            if product.matrix.shape[0] != len(row):
                continue
            start = source.features[0].start
            if start >= product.matrix.shape[1]:
                continue
            likeness = F.cosine_similarity(product.matrix[:, start].float(), row, dim=0)
            if float(likeness.abs()) > 1 - 1e-5:
                return self.names.get(product.weight.data_ptr(), "")
        return ""

    def of_mlps(self) -> Iterator[_Pair]:
        """The matrix before an activation and the one behind it, plain or gated."""
        for at, down in enumerate(self.products):
            name = self.names.get(down.weight.data_ptr(), "")
            site = self.patient.site(name)
            if site.layer == 0:
                continue
            earlier = [
                one for one in self.products[max(0, at - 4) : at]
                if self.patient.site(self.names.get(one.weight.data_ptr(), "")).layer == site.layer
            ]  # fmt: skip
            ups = _before(earlier, down)
            columns = down.matrix.float().norm(dim=1).log()
            for up, rows in ups:
                first = self.names.get(up.weight.data_ptr(), "")
                if first and first != name:
                    yield _Pair("mlp", site.stack, site.layer, first, name, rows, columns)


def _rows(source: Source | None) -> Tensor | None:
    return None if source is None or source.weight is None else source.weight.float()


def _is_turned(source: Source | None) -> bool:
    return source is not None and source.turned


def _grams(weight: Tensor, groups: int) -> Tensor:
    """Gram matrices of the rows of each head, summed over the heads that share keys and values."""
    grams = weight @ weight.mT
    return grams.unflatten(0, (groups, -1)).sum(1)


def _entries_of(grams: Tensor) -> Tensor:
    """The entries above the diagonal, [head, entry]."""
    above = torch.triu_indices(grams.shape[1], grams.shape[1], 1, device=grams.device)
    return grams[:, above[0], above[1]]


def _off(grams: Tensor) -> Tensor:
    return _entries_of(grams).flatten()


def _before(
    earlier: Sequence[WeightProduct], down: WeightProduct
) -> list[tuple[WeightProduct, Tensor]]:
    """Products that an activation, or a gate, stands behind, and the log norms of their rows."""
    width = down.matrix.shape[0]
    hidden = down.entered.reshape(-1, width)[:_SAMPLED].float()
    halves: list[tuple[WeightProduct, Tensor, Tensor]] = []
    for one in earlier:
        outputs = one.matrix.shape[1]
        answers = one.returned.reshape(-1, outputs)[:_SAMPLED].float()
        sizes = one.matrix.float().norm(dim=0).log()
        if outputs == width:
            halves.append((one, answers, sizes))
        elif outputs == 2 * width:
            halves.append((one, answers[:, :width], sizes[:width]))
            halves.append((one, answers[:, width:], sizes[width:]))
    for one, answers, sizes in halves:
        if any(_alike(act(answers), hidden) for act in ACTIVATIONS.values()):
            return [(one, sizes)]
    for gate, gates, gate_sizes in halves:
        for one, answers, sizes in halves:
            if one is gate and answers is gates:
                continue
            if any(_alike(act(gates) * answers, hidden) for act in ACTIVATIONS.values()):
                return [(one, sizes), (gate, gate_sizes)]
    return []


def _alike(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    return float((first - second).norm()) <= _LIKE * float(second.norm()) + 1e-30


# --- numbers ----------------------------------------------------------------------------------


def _unit(rows: Tensor) -> Tensor:
    rows = rows.double() - rows.double().mean(-1, keepdim=True)
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-300)


def _entries(pairs: Sequence[_Pair]) -> list[dict[str, Any]]:
    """The correlation of every pair, and the partner in another layer or reading that fits better."""
    entries: list[dict[str, Any]] = []
    lines: dict[tuple[str, str, str, str, int], list[_Pair]] = {}
    for pair in pairs:
        if not bool(torch.isfinite(pair.ours).all() and torch.isfinite(pair.theirs).all()):
            continue
        inside = pair.first.rpartition(f".{pair.layer - 1}.")[2]
        key = (pair.kind, pair.stack, inside, pair.second.rpartition(f".{pair.layer - 1}.")[2],
               pair.ours.numel())  # fmt: skip
        lines.setdefault(key, []).append(pair)
    for line in lines.values():
        ours = _unit(torch.stack([pair.ours for pair in line]))
        theirs = _unit(torch.stack([pair.theirs for pair in line]))
        likeness = ours @ theirs.T
        for at, pair in enumerate(line):
            entry: dict[str, Any] = {
                "kind": pair.kind, "stack": pair.stack, "layer": pair.layer,
                "first": pair.first, "second": pair.second,
                "entries": pair.ours.numel(), "likeness": float(likeness[at, at]),
            }  # fmt: skip
            if len(line) > 1:
                others = likeness[at].clone()
                others[at] = -1.0
                best = int(others.argmax())
                entry["nearest"] = {"layer": line[best].layer, "likeness": float(others[best])}
            if "keys" in pair.others:
                entry["keys"] = float(_unit(pair.others["keys"]) @ theirs[at])
            if "transposed" in pair.others:
                entry["transposed"] = float(ours[at] @ _unit(pair.others["transposed"]))
            if pair.heads is not None:
                entry["heads"] = _partners(*pair.heads)
            entries.append(entry)
    return entries


def _partners(values: Tensor, written: Tensor) -> dict[str, Any]:
    """Whose values fit what each head writes best, beside whose they should be; counted from 1."""
    likeness = _unit(written) @ _unit(values).T
    best = likeness.argmax(1)
    shared = len(written) // len(values)
    return {
        "partner": [int(one) + 1 for one in best],
        "expected": [head // shared + 1 for head in range(len(written))],
        "likeness": float(likeness.amax(1).mean()),
        "entries": values.shape[1],
    }
