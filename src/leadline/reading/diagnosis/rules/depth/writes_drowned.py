"""D06: the stream is so large that writes do not matter in it.

Thresholds. Beside the twin: the share |u| / |x| is a tenth of the twin's in at least half of the layers,
because the stream is ten times larger, and not because the writes are smaller. As drawn, shares of
models and twins lie within a factor of 1.3 of each other. In a trained model: three layers of four write
less than 0.002 of the stream where the twin writes ten times as much; SmolLM2's smallest share is 0.10
and the embedded pair's 0.26.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import line_of, twin_line_of, writes_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding

FACTOR = 10.0
JUMP = 10.0
TRAINED_SHARE = 0.002


@rule(
    "D06",
    "writes-drowned",
    severity="warning",
    basis="twin",
    needs=("update.ratio", "update.norm", "stream.norm", "twin"),
    summary="The stream is so large that what most sublayers write does not matter in it.",
    why="The model behaves like its embedding: layers change nothing, and bfloat16 rounds them away.",
    is_not="Writes that are small by design (ReZero, LayerScale, zero-initialised layers, CompleteP): there "
    "the stream is as large as its twin's.",
    false_alarms="Models whose embedding is scaled on purpose and whose class does not know of it.",
    remedy="Bring the stream back: the scale of the embedding, or of the write that lifts it.",
    sources=("Sun et al. 2025, arXiv 2502.05795",),
    explains=("depth-unused", "bfloat16-write-loss"),
    example="embedding-times-100",
)
def writes_drowned(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the shares of all writes with those of the twin."""
    for stack in case.stacks:
        ratios, twins = (
            writes_of(case, "update.ratio", stack),
            writes_of(case, "update.ratio", stack, twin=True),
        )
        sizes, twin_sizes = (
            writes_of(case, "update.norm", stack),
            writes_of(case, "update.norm", stack, twin=True),
        )
        norms, twin_norms = (
            line_of(case, "stream.norm", stack),
            twin_line_of(case, "stream.norm", stack),
        )
        layers = sorted({at for line in ratios.values() for at in line})
        lost = [
            at
            for at in layers
            if norms.get(at, 0.0) > FACTOR * twin_norms.get(at, float("inf"))
            and all(
                _drowns(line.get(at), twins.get(role, {}).get(at)) for role, line in ratios.items()
            )
            and not all(
                _is_small(sizes.get(role, {}).get(at), twin_sizes.get(role, {}).get(at))
                for role in ratios
            )
        ]
        if case.at_initialisation is False:
            lost = [
                at
                for at in lost
                if all(line[at] < TRAINED_SHARE for line in ratios.values() if at in line)
            ]
            enough = len(lost) >= 0.75 * len(layers)
        else:
            enough = len(lost) >= max(2, 0.5 * len(layers))
        if not layers or not enough:
            continue
        first = lost[0]
        if norms.get(first - 1, 0.0) > JUMP * norms.get(first - 2, float("inf")):
            continue  # One layer before lifts the stream: that is the finding of another rule.
        share = median(line[at] for line in ratios.values() for at in lost if at in line)
        expected = median(line[at] for line in twins.values() for at in lost if at in line)
        before = "the embedding" if first == 1 else f"layer {first - 1}"
        yield rule.finding(
            f"The stream of the {stack} drowns what {layers_text(lost, case.depth(stack))} write: it is "
            f"{norms[first] / twin_norms[first]:.3g} times larger than drawn weights make it.",
            stack=stack,
            layers=lost,
            evidence=[
                Evidence("update over stream, median", share, expected, "the twin"),
                Evidence(
                    f"stream norm after layer {first}", norms[first], twin_norms[first], "the twin"
                ),
            ],
            ruled_out=["writes that are small themselves: they are as large as the twin's"],
            cause=f"{before} is far larger than the class draws it"
            if first == 1
            else f"{before} lifts the stream",
            remedy=f"Scale {before} back by {twin_norms[first] / norms[first]:.2g}.",
            quantity="update.ratio",
        )


def _drowns(share: float | None, twin: float | None) -> bool:
    return share is not None and twin is not None and 0 < share < twin / FACTOR


def _is_small(size: float | None, twin: float | None) -> bool:
    return size is not None and twin is not None and size < twin / FACTOR
