"""W05: a tensor among trained ones that does not belong there: redrawn, transposed, swapped, not loaded.

Trained weights know their neighbours: |W z|^2 n / (|W|^2 |z|^2) is 1 for a matrix that was drawn
independently of what enters it, and the same holds backwards. A tensor whose both numbers are near 1
while the same tensor in all other layers is clearly above is foreign.

Thresholds: below 1.2 among others above 1.3. Seen on the embedded pair of trained models, with each of
48 matrices exchanged for a fresh one or for that of another layer: the larger of the two numbers was
at most 1.22 for fresh ones and above 1.2 for six of another layer (1.61 at most). Untouched ones were
above 1.2 in the pre-norm model, but 0.97 to 1.16 in four matrices of the post-norm model, so one alone
counts only if all others are above. Row and column norms that vary as those of independent numbers (within 1.15 of
1 / sqrt(2 n)) among layers that vary at least 1.5 times more say the same.

Surer is what meets in a product: values and output matrix of the heads, queries and keys, the two maps of
an MLP grow alike in training (`reading.diagnosis.wiring`). Two strangers in one layer, where those of
the other layers are kin, do not belong together; where one of them is kin with a matrix of another
layer, or transposed, that is what happened to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    is_matrix,
    is_untrained,
    names_text,
    role_of,
    shape_of,
    site_text,
    tensor_lines,
)
from leadline.reading.diagnosis.wiring import (
    Parted,
    all_parted,
    parted_pairs,
    trial,
    true_partner,
)
from leadline.record.rows.finding import Finding

LOW = 1.2
HIGH = 1.3
STRONG = 2.0
"""Where alignment is weak, as in post-norm models, inputs alone move a healthy tensor below `LOW`."""
FIRST_LOW = 1.05
"""The first layer reads embeddings, which are less alike: a healthy one was seen at 1.15."""
LAYER_SHARE = 0.75
FEWEST_TOKENS = 16
"""Alignment is a mean over tokens. Of a handful, all inputs of a layer may lie outside of what a trained
matrix passes on: a healthy sentence encoder, read on the two words "Hi there", had one below `LOW`."""
INDEPENDENT = 1.15
DEPENDENT = 1.5


@dataclass(frozen=True)
class _Sign:
    """One tensor that looks foreign, and the number that says so."""

    place: CasePlace
    what: str
    value: float
    others: float


@rule(
    "W05",
    "weights-foreign",
    severity="serious",
    basis="neighbours",
    needs=("weights.rms", "alignment.forward"),
    summary="A weight tensor among trained ones knows neither what enters it nor the matrix that it meets: "
    "it was redrawn, transposed, swapped with another, or never loaded.",
    why="The layer does noise where it should do what it learnt.",
    is_not="A model as it was drawn: none of its matrices knows its neighbours.",
    false_alarms="A layer that training never moved; post-norm models, whose alignment is weaker.",
    remedy="Load the tensor again; look at the names in the file and at the axes of the matrix.",
    sources=(
        "https://github.com/huggingface/transformers/issues/48722",
        "Arora, Cohen and Hazan 2018, arXiv 1802.06509", "Du, Hu and Lee 2018, arXiv 1806.00900",
    ),
    explains=(
        "loss-worse-than-unigram", "loss-worse-than-uniform", "write-harmful",
        "unlike-its-family", "weights-layout-wrong", "attention-uniform", "attention-saturated",
    ),
    example="tensor-redrawn",
)  # fmt: skip
def weights_foreign(case: Case, rule: Rule) -> Iterator[Finding]:
    """What the file lacked; else layers of which most tensors look foreign; else single tensors."""
    missing = [name for name in case.fact("missing", ()) if shape_of(case, name)]
    if missing:
        yield _missing_finding(case, rule, missing)
        return
    if is_untrained(case):
        return
    put_right = trial(case, "layers exchanged", "transposed")
    if put_right is not None:
        yield _trial_finding(case, rule, put_right)
        return
    parted = parted_pairs(case)
    signs = {sign.place: sign for sign in (*_normal(case), *_independent(case))}
    layers: set[tuple[str, int]] = set()
    if _tokens_suffice(case):  # else each pair of strangers is named, by its weights alone
        signs |= {sign.place: sign for sign in _unaligned(case)}
        layers = {*_layers(case), *(key for key, pairs in parted.items() if all_parted(pairs))}
    # Where a partner is known, one matrix is named rather than its layer.
    layers -= {key for key, pairs in parted.items() if any(true_partner(one) for one, _ in pairs)}
    for stack, layer in sorted(layers):
        yield _layer_finding(case, rule, stack, layer)
    for (stack, layer), pairs in sorted(parted.items()):
        if (stack, layer) not in layers:
            yield _meeting_finding(case, rule, pairs, signs)
    for place, sign in signs.items():
        if (place.stack, place.layer) not in layers | parted.keys():
            yield _tensor_finding(case, rule, sign)


def _trial_finding(case: Case, rule: Rule, best: Mapping[str, Any]) -> Finding:
    """Two layers exchanged, or a matrix transposed, by what the loss is with it put right."""
    before = case.fact("trials")["loss"]
    falls = f"the loss falls from {before:.3g} to {best['loss']:.3g}"
    if best["what"] == "transposed":
        name = best["parameters"][0]
        stack, layer = case.place_of(name)
        layers = [layer]
        verdict = f"{name} is transposed: with its axes exchanged {falls}."
        remedy = Remedy(f"Transpose {name}.", edit={"edit": "transpose-tensor", "parameter": name})
    else:
        stack, layers = best["stack"], best["layers"]
        one, other = layers
        name = case.module(stack, one)
        verdict = (
            f"The weights of {stack} layers {one} and {other} are exchanged: put back, {falls}."
        )
        remedy = Remedy("Compare the numbers of the layers in the file with those of the model.")
    return rule.finding(
        verdict,
        stack=stack,
        layers=layers,
        parameter=name,
        evidence=[Evidence("loss with it put right", best["loss"], before, "as it stands")],
        ruled_out=["an untrained model: put right, it predicts better than counting does"],
        cause="weights that were loaded under the name, or with the axes, of others",
        remedy=remedy,
        confidence="certain",
        quantity="alignment.forward",
    )


def _meeting_finding(
    case: Case, rule: Rule, pairs: Parted, signs: dict[CasePlace, _Sign]
) -> Finding:
    """One of two matrices that meet is foreign: the one that looks drawn or stands in several pairs."""
    one, others = max(pairs, key=lambda pair: bool(true_partner(pair[0])))
    partner = true_partner(one)
    drawn = {case.parameter(place) for place in signs}
    names = [name for pair, _ in pairs for name in (pair.second, pair.first)]
    name = one.second
    if not partner:
        name = next((n for n in names if n in drawn), max(names, key=names.count))
    other = one.first if name == one.second else one.second
    at = site_text(case, one.stack, [one.layer])
    joint = f"; {partner}" if partner else ""
    return rule.finding(
        f"{name} in {at} does not belong there: it and {other} do not know each other, while the same "
        f"two of the other layers do{joint}.",
        stack=one.stack,
        layers=[one.layer],
        sublayer=role_of(case, one.stack, one.layer, name),
        parameter=name,
        evidence=[
            Evidence(f"likeness of {one.first} and {one.second} where they meet", one.likeness, others,
                     "the same two in the other layers"),
            Evidence("of strangers", 0.0, f"+-{1 / math.sqrt(one.entries):.2g}"),
        ],
        ruled_out=["an untrained model: the other layers are trained"],
        cause="the tensor was drawn again, transposed, swapped with another, or not in the file",
        remedy=Remedy(f"Load {name} again; compare its name and its axes with the checkpoint."),
        quantity="alignment.forward",
    )  # fmt: skip


def _tokens_suffice(case: Case) -> bool:
    """Whether alignment was read from enough tokens; so it is where their number was not kept."""
    tokens = case.fact("small_tokens")
    return tokens is None or tokens >= FEWEST_TOKENS


def _alignment(case: Case) -> dict[CasePlace, float]:
    """The larger of both alignments of every matrix."""
    back = case.values("alignment.backward")
    return {p: max(v, back.get(p, 0.0)) for p, v in case.values("alignment.forward").items()}


def _lines(case: Case) -> dict[tuple[str, str], dict[int, float]]:
    lines: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for place, value in _alignment(case).items():
        if place.stack != OUTSIDE and is_matrix(case, place):
            lines[place.stack, place.point][place.layer] = value
    return lines


def _unaligned(case: Case) -> Iterator[_Sign]:
    """The one tensor of its name that is low while all others are high."""
    for (stack, point), line in _lines(case).items():
        low = [layer for layer, value in line.items() if value < (LOW if layer > 1 else FIRST_LOW)]
        others = [value for layer, value in line.items() if layer not in low]
        if len(low) == 1 and len(others) >= 3 and min(others) > HIGH and median(others) > STRONG:
            place = CasePlace(stack, low[0], None, point)
            yield _Sign(place, "alignment with its neighbours", line[low[0]], median(others))


def _independent(case: Case) -> Iterator[_Sign]:
    """Tensors whose rows and columns vary as independent numbers do, where others vary more."""
    rows, columns = case.values("weights.row_spread"), case.values("weights.column_spread")
    lines: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for place, spread in rows.items():
        shape = shape_of(case, case.parameter(place))
        if place.stack == OUTSIDE or place not in columns or len(shape) != 2 or min(shape) < 32:
            continue
        excess = max(spread * math.sqrt(2 * shape[1]), columns[place] * math.sqrt(2 * shape[0]))
        lines[place.stack, place.point][place.layer] = excess
    for (stack, point), line in lines.items():
        low = [layer for layer, value in line.items() if value < INDEPENDENT]
        others = [value for layer, value in line.items() if layer not in low]
        if 0 < len(low) <= max(1, len(line) // 3) and len(others) >= 3 and min(others) > DEPENDENT:
            for layer in low:
                yield _Sign(CasePlace(stack, layer, None, point),
                            "variation of row and column norms over that of independent numbers",
                            line[layer], median(others))  # fmt: skip


def _normal(case: Case) -> Iterator[_Sign]:
    """The one tensor that is drawn from the normal distribution where the others are not.

    Kurtosis of N normal draws is 3 with a deviation of sqrt(24 / N). Two models whose weights were drawn from
    a uniform distribution and trained briefly have 1.9 to 2.7.
    """
    for (stack, point), line in tensor_lines(case, "weights.kurtosis").items():
        place = CasePlace(stack, min(line), None, point)
        shape = shape_of(case, case.parameter(place))
        if len(shape) != 2 or min(shape) < 32 or len(line) < 4:
            continue
        deviation = math.sqrt(24 / math.prod(shape))
        low = [layer for layer, value in line.items() if abs(value - 3) < 4 * deviation]
        others = [value for layer, value in line.items() if layer not in low]
        if len(low) == 1 and max(others) < 3 - max(0.2, 8 * deviation):
            yield _Sign(CasePlace(stack, low[0], None, point),
                        "kurtosis", line[low[0]], median(others))  # fmt: skip


def _layers(case: Case) -> list[tuple[str, int]]:
    """Layers of which most matrices are low, where in the other layers few are."""
    by_layer: defaultdict[tuple[str, int], list[bool]] = defaultdict(list)
    for (stack, _), line in _lines(case).items():
        for layer, value in line.items():
            by_layer[stack, layer].append(value < LOW)
    shares = {key: sum(low) / len(low) for key, low in by_layer.items() if len(low) >= 3}
    odd = [key for key, share in shares.items() if share >= LAYER_SHARE]
    rest = [share for key, share in shares.items() if key not in odd]
    few = len(rest) >= 3 and len(odd) <= len(rest) / 2 and median(rest) <= 1 - LAYER_SHARE
    return odd if few and max(rest) < LAYER_SHARE else []


def _tensor_finding(case: Case, rule: Rule, sign: _Sign) -> Finding:
    place = sign.place
    name = case.parameter(place)
    at = site_text(case, place.stack, [place.layer])
    return rule.finding(
        f"{name} in {at} does not belong there: it knows nothing of what enters it, while the same "
        "tensor in the other layers does.",
        stack=place.stack,
        layers=[place.layer],
        sublayer=role_of(case, place.stack, place.layer, name),
        parameter=name,
        evidence=[
            Evidence(f"{sign.what} of {name}", sign.value, sign.others,
                     "the same tensor in the other layers"),
            Evidence("of an independent matrix", 3.0 if sign.what == "kurtosis" else 1.0),
        ],
        ruled_out=["an untrained model: the other layers are trained"],
        cause="the tensor was drawn again, transposed, swapped with another, or not in the file",
        remedy=Remedy(f"Load {name} again; compare its name and its axes with the checkpoint."),
        quantity="alignment.forward",
    )  # fmt: skip


def _layer_finding(case: Case, rule: Rule, stack: str, layer: int) -> Finding:
    values = [
        line[layer] for (one, _), line in _lines(case).items() if one == stack and layer in line
    ]
    others = [
        value
        for (one, _), line in _lines(case).items()
        for at, value in line.items()
        if one == stack and at != layer
    ]
    return rule.finding(
        f"The weights of {stack} layer {layer} do not belong there: they know nothing of what enters "
        "them, while those of the other layers do.",
        stack=stack,
        layers=[layer],
        parameter=case.module(stack, layer),
        evidence=[
            Evidence("median alignment of its matrices", median(values), median(others),
                     "the other layers"),
            Evidence("of an independent matrix", 1.0),
        ],
        ruled_out=["an untrained model: the other layers are trained"],
        cause="the layer was drawn again, swapped with another, or not in the file",
        remedy=Remedy(f"Load layer {layer} again; compare the names in the file with the model's."),
        quantity="alignment.forward",
    )  # fmt: skip


def _missing_finding(case: Case, rule: Rule, names: list[str]) -> Finding:
    layers: set[int] = set()
    stacks: set[str] = set()
    for stack, paths in case.fact("rows", {}).items():
        for layer, path in enumerate(paths, start=1):
            if any(name.startswith(f"{path}.") for name in names):
                layers.add(layer)
                stacks.add(stack)
    stack = stacks.pop() if len(stacks) == 1 else None
    return rule.finding(
        f"{len(names)} parameter{'s were' if len(names) > 1 else ' was'} not in the file and "
        f"{'are' if len(names) > 1 else 'is'} as drawn: {names_text(names)}.",
        stack=stack,
        layers=layers if stack else (),
        parameter=names[0],
        evidence=[Evidence("parameters that the file lacks", float(len(names)), 0.0, "the loader")],
        cause="the names in the file do not match those of the model",
        remedy=Remedy("Compare the names in the file with those of the model, and load again."),
        confidence="certain",
    )
