"""W06: rows of a weight stand in another order than the code reads them, in all layers.

A permutation of rows leaves |W z| as it was and takes away what training taught the matrix about the
gradient at its outputs: forward alignment stays, backward alignment falls to 1 in every layer.

Where training made values and output matrix alike head by head (`reading.diagnosis.wiring`), the order is
read off exactly: heads whose output matrix fits the values of another head, in the same order in most
layers, and keys that fit the output matrix where values should.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import is_untrained, role_of, site_text
from leadline.reading.diagnosis.wiring import LEAST, MatrixPair, meetings, trial
from leadline.record.rows.finding import Finding

LOW = 1.15
HIGH = 1.35
SEVERED = 1.3
READ_BACK = 1.5

Lines = dict[tuple[str, str], dict[int, float]]


@rule(
    "W06",
    "weights-layout-wrong",
    severity="serious",
    basis="hint",
    needs=("alignment.backward",),
    summary="Queries, keys, values or heads stand in another order than the code reads them (rotary halves "
    "against pairs, keys in place of values, heads): in another order they fit, or the loss falls.",
    why="The numbers are right and in the wrong places: norms look healthy and the loss does not.",
    is_not="One layer that is foreign (weights-foreign); a fresh model.",
    false_alarms="Short training, where alignment is weak everywhere.",
    remedy="Permute the rows as the conversion script of the family does, or exchange the two tensors.",
    sources=(
        "https://github.com/ooples/AiDotNet/issues/2074",
        "https://github.com/huggingface/nanotron/issues/427",
    ),
    explains=("loss-worse-than-unigram", "loss-worse-than-uniform", "positions-wrong"),
    example="rope-layout-wrong",
)
def weights_layout_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Projections of attention that are low backwards in all layers among others that are not."""
    if is_untrained(case):
        return
    certain = [*_other_pairs(case, rule), *_wired_otherwise(case, rule)]
    if certain:
        yield from certain
        return
    backward = {
        key: line for key, line in case.lines("alignment.backward").items()
        if key[0] != OUTSIDE and len(line) >= 3
    }  # fmt: skip
    forward = case.lines("alignment.forward")
    for stack in sorted({key[0] for key in backward}):
        yield from _severed(case, rule, stack, forward, backward)
        lines = {point: line for (one, point), line in backward.items() if one == stack}
        low = [
            point
            for point, line in lines.items()
            if _is_read(point) and median(line.values()) < LOW and max(line.values()) < HIGH
            and median(forward[stack, point].values()) > HIGH
        ]  # fmt: skip
        readers = [point for point in lines if _is_reader(point)]
        rest = [median(lines[point].values()) for point in readers if point not in low]
        if not 1 < len(low) < len(readers) or not rest or median(rest) < HIGH:
            continue
        layers = sorted(lines[low[0]])
        name = f"{case.module(stack, layers[0])}.{low[0]}"
        at = site_text(case, stack, layers)
        yield rule.finding(
            f"The rows of {' and '.join(low)} in {at} stand in another order than the code reads "
            "them.",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=name,
            evidence=[
                Evidence(f"backward alignment of {low[0]}, median of layers",
                         median(lines[low[0]].values()), median(rest), "other matrices of the layers"),
                Evidence(f"forward alignment of {low[0]}",
                         median(forward[stack, low[0]].values())),
            ],
            ruled_out=["untrained weights: they know what enters them"],
            cause="rotary halves against pairs, keys and values exchanged, or another order of heads",
            remedy=Remedy(
                "Permute the rows as the family's conversion does, or exchange the two tensors."
            ),
            confidence="possible",
        )  # fmt: skip


def _other_pairs(case: Case, rule: Rule) -> Iterator[Finding]:
    """Queries and keys that predict better with the rows of the other rotary pairing."""
    best = trial(case, "rotary pairs")
    if best is None:
        return
    names: list[str] = best["parameters"]
    stack, _ = case.place_of(names[0])
    layers = sorted({case.place_of(name)[1] for name in names})
    before = case.fact("trials")["loss"]
    yield rule.finding(
        f"The rows of queries and keys in {site_text(case, stack or '', layers)} are in the order of the "
        f"other rotary pairing: read so, the loss falls from {before:.3g} to {best['loss']:.3g}.",
        stack=stack,
        layers=layers,
        sublayer="attention",
        parameter=names[0],
        evidence=[
            Evidence("loss with the rows in the other order", best["loss"], before, "as they stand")
        ],
        ruled_out=["a healthy rotary model: it predicts worse in the other order"],
        cause="rows were stored for rotary pairs of neighbours and the code turns halves, or the reverse",
        remedy=Remedy("Permute the rows of queries and keys as the conversion of the family does."),
        confidence="certain",
    )


def _wired_otherwise(case: Case, rule: Rule) -> Iterator[Finding]:
    """Keys in place of values, or heads in another order, in most layers of a stack."""
    for line in meetings(case).values():
        if line[0].kind != "values" or len(line) < 3:
            continue
        keys = [one for one in line if one.strange and one.kin(one.facts.get("keys", 0.0))]
        if 2 * len(keys) > len(line):
            yield _wired_finding(
                case, rule, keys,
                f"Keys and values are exchanged in {{at}}: {keys[0].second} fits the keys, and not the "
                "values.",
                Evidence("likeness of keys and output matrix, median of layers",
                         median(one.facts["keys"] for one in keys), 0.0, "healthy attention"),
                "Exchange the two tensors, or the two parts of the fused one.",
            )  # fmt: skip
            continue
        orders = [tuple(one.facts["heads"]["partner"]) for one in line if _reordered(one)]
        if not orders:
            continue
        order = max(set(orders), key=orders.count)
        layers = [
            one for one in line if _reordered(one) and one.facts["heads"]["partner"] == [*order]
        ]
        # The same wrong order by chance in most layers is out of the question.
        if 2 * len(layers) > len(line):
            yield _wired_finding(
                case, rule, layers,
                f"{layers[0].second} takes the heads in another order than they come in {{at}}: what its "
                f"heads read are the values of {', '.join(map(str, order))}.",
                Evidence("likeness of values and output matrix, head by head, in that order",
                         median(one.facts["heads"]["likeness"] for one in layers),
                         median(one.likeness for one in layers), "the order of the code"),
                "Permute the columns of the output matrix into the order of the heads.",
            )  # fmt: skip


def _reordered(one: MatrixPair) -> bool:
    heads = one.facts.get("heads")
    return (
        heads is not None
        and heads["partner"] != heads["expected"]
        and heads["likeness"] > max(LEAST, one.likeness)
    )


def _wired_finding(
    case: Case, rule: Rule, line: list[MatrixPair], verdict: str, evidence: Evidence, remedy: str
) -> Finding:
    layers = sorted(one.layer for one in line)
    stack = line[0].stack
    return rule.finding(
        verdict.format(at=site_text(case, stack, layers)),
        stack=stack,
        layers=layers,
        sublayer="attention",
        parameter=line[0].second,
        evidence=[
            evidence,
            Evidence("likeness of values and output matrix as they stand",
                     median(one.likeness for one in line)),
        ],
        ruled_out=["untrained weights: in another order they know each other"],
        cause="a conversion that mistook the order of rows or the names of tensors",
        remedy=Remedy(remedy),
        confidence="certain",
    )  # fmt: skip


def _is_read(point: str) -> bool:
    """Whether a projection makes queries, keys or values, by its name."""
    name = point.lower()
    return any(word in name for word in ("q_proj", "k_proj", "v_proj", "query", "key", "value"))


def _is_reader(point: str) -> bool:
    """Whether a matrix reads the stream: those that write to it are less aligned backwards."""
    name = point.lower()
    return _is_read(point) or any(
        word in name for word in ("up_proj", "gate_proj", "fc1", "c_fc", "intermediate", "h_to_4h")
    )


def _severed(
    case: Case, rule: Rule, stack: str, forward: Lines, backward: Lines
) -> Iterator[Finding]:
    """Attention whose output matrix knows nothing of what enters it, in the middle of all layers.

    The matrix behind the heads then reads something else than it was trained on, and the gradient
    that it sends back means nothing to the projections before it. Three trained models of the
    tuning side (BERT, Llama, a plain GPT) had medians of 1.3, 7.2 and 9.0 at the output matrix; with
    exchanged keys and values 0.98, 1.28 and 0.62, and 1.1 to 1.44 backwards.
    """
    outputs = [p for s, p in forward if s == stack and _is_output(case, stack, p)]
    readers = [
        p
        for s, p in backward
        if s == stack and p not in outputs and _role(case, stack, p) == "attention"
    ]
    rest = [
        median(line.values())
        for (s, p), line in forward.items()
        if s == stack and len(line) >= 3 and _role(case, stack, p) == "mlp"
    ]
    if len(outputs) != 1 or not readers or not rest or len(forward[stack, outputs[0]]) < 3:
        return
    behind = median(forward[stack, outputs[0]].values())
    before = median(value for p in readers for value in backward[stack, p].values())
    if behind >= SEVERED or before >= READ_BACK or behind > 0.7 * median(rest):
        return
    if not _predicts_badly(case):
        return
    layers = sorted(forward[stack, outputs[0]])
    name = f"{case.module(stack, layers[0])}.{outputs[0]}"
    yield rule.finding(
        f"What the heads hand over in {site_text(case, stack, layers)} is not what {outputs[0]} was "
        "trained on: keys and values are exchanged, or heads stand in another order.",
        stack=stack,
        layers=layers,
        sublayer="attention",
        parameter=name,
        evidence=[
            Evidence(f"forward alignment of {outputs[0]}, median of layers", behind, median(rest),
                     "matrices of the MLP"),
            Evidence("backward alignment of queries, keys and values", before, "above 1.35",
                     "trained weights"),
        ],
        ruled_out=["untrained weights: those of the MLP know what enters them"],
        cause="keys and values exchanged, or another order of heads or rows",
        remedy=Remedy("Exchange the two tensors, or permute the rows as the family's conversion does."),
        confidence="possible",
    )  # fmt: skip


def _predicts_badly(case: Case) -> bool:
    """Whether natural text is predicted worse than by counting its tokens.

    Without a loss of its own (MiniLM has none) a model gets a random cotangent, and no gradient of
    it is aligned with anything.
    """
    loss = case.fact("output", {}).get("loss")
    entropy = case.fact("unigram", {}).get("entropy")
    return case.natural and loss is not None and entropy is not None and loss > entropy


def _role(case: Case, stack: str, point: str) -> str | None:
    return role_of(case, stack, 1, f"{case.module(stack, 1)}.{point}")


def _is_output(case: Case, stack: str, point: str) -> bool:
    """Whether a matrix of attention stands behind the heads, by its name."""
    name = point.lower().removesuffix(".weight").rpartition(".")[2]
    whole = point.lower()
    words = ("o_proj", "c_proj", "out_proj", "out", "output", "dense", "wo", "o", "proj")
    return _role(case, stack, point) == "attention" and (
        name in words and not any(w in whole for w in ("query", "key", "value", "qkv"))
    )
