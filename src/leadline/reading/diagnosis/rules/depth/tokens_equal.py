"""D05: tokens that entered differently have become equal.

Thresholds on the relative residual r, the share of the tokens that is not their mean; the mean cosine is
about 1 - r^2. As drawn: r below 0.1 and a fifth of what entered. Of 80 healthy designs at depth 24 the
smallest r was 0.20 (NormFormer), then 0.33; a post-norm model drawn by Xavier has 0.067 there, models
without skips 1e-6. Trained: r below 0.03 (a cosine of 0.999), because the streams of trained language
models share a direction: 0.95 and 0.99 are common there and harmless.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import as_drawn, is_finite_line, line_of, twin_line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding

DRAWN, TRAINED = 0.1, 0.03
SHARE = 0.2
LEAST_TYPES = 4
"""Inputs with fewer different tokens are one token repeated: only positions tell them apart."""
SUDDEN = 0.1
"""A layer that leaves less than this share of the residual before it has made tokens equal by itself.
Of 37 healthy hosts the fastest fall in one layer was to 0.58 (Gemma 2 as drawn)."""
SHARED = 0.05
"""A residual at the entry below this, where the twin has ten times more, is one vector in all rows of the
embedding. Of 37 healthy hosts the smallest was 0.72; a vector of 50 deviations leaves 1/50."""
NEAR_ONE = 0.999
ENTERED = 0.2
"""Tokens whose residual is smaller at the entry were nearly equal before any layer."""


@rule(
    "D05",
    "tokens-equal",
    severity="warning",
    basis="law",
    needs=("tokens.relative_residual",),
    summary="Tokens that differ at the input are nearly the same vector after some layers (rank collapse).",
    why="Attention and head then see one token many times: the model cannot tell positions or words "
    "apart, although the norm of its gradient may look healthy.",
    is_not="Inputs that repeat one token, or that enter nearly equal. Streams of trained models that share "
    "a large direction: what differs is small there, and is there.",
    false_alarms="Sentence encoders that are meant to write one vector into every token.",
    remedy="At initialisation: a skip around every sublayer, branches scaled by 1/sqrt(depth), DeepNorm or "
    "pre-norm. In a trained model: go back to the checkpoint before it happened, with a smaller rate.",
    sources=("Dong et al. 2021, arXiv 2103.03404", "Noci et al. 2022, arXiv 2206.03126"),
    explains=(
        "positions-unused",
        "does-not-learn",
        "attention-uniform",
        "loss-worse-than-unigram",
        "loss-worse-than-uniform",
        "heads-equal",
    ),
    example="stream-pooled",
)
def tokens_equal(case: Case, rule: Rule) -> Iterator[Finding]:
    """Find the first layer from which on tokens are equal to the end."""
    unigram: dict[str, float] = case.fact("unigram") or {}
    if unigram.get("types", LEAST_TYPES) < LEAST_TYPES:
        return
    drawn = as_drawn(case)
    limit = DRAWN if drawn else TRAINED
    for stack in case.stacks:
        line = line_of(case, "tokens.relative_residual", stack)
        entered = line.get(0)
        finite = {at: value for at, value in line.items() if value == value}
        twin = twin_line_of(case, "tokens.relative_residual", stack).get(0, 0.0)
        if entered is not None and entered < SHARED and twin > 10 * entered:
            yield _entry_finding(case, rule, stack, entered, twin)
            continue
        if (
            entered is None
            or not entered > ENTERED
            or len(finite) < 2
            or not is_finite_line(finite)
        ):
            continue
        last = max(finite)
        equal = [at for at in finite if at and finite[at] < limit and finite[at] < SHARE * entered]
        if last not in equal:
            continue
        first = min(at for at in equal if all(later in equal for later in finite if later >= at))
        yield _finding(case, rule, stack, (first, last, max(line)), finite, drawn=drawn)


def _entry_finding(case: Case, rule: Rule, stack: str, entered: float, twin: float) -> Finding:
    """Tokens that are equal before the first layer."""
    name = case.fact("ends", {}).get("embedding", "")
    return rule.finding(
        f"Tokens are nearly equal when they enter the {stack}: {name or 'the embedding'} gives them all "
        "one large vector.",
        stack=stack,
        parameter=name or None,
        evidence=[Evidence("relative residual at the entry", entered, twin, "the twin")],
        ruled_out=["inputs that are alike: the twin tells them apart"],
        cause="one vector that all rows of the embedding share",
        remedy="Take the mean of its rows off the embedding, or load it again.",
        quantity="tokens.relative_residual",
    )


def _finding(
    case: Case,
    rule: Rule,
    stack: str,
    layers: tuple[int, int, int],
    line: dict[int, float],
    *,
    drawn: bool,
) -> Finding:
    first, last, end = layers
    cosine = line_of(case, "tokens.cosine", stack)
    post = case.placements(stack) == {"post"}
    depth = case.depth(stack)
    # Where one layer does it, that layer is the place; where depth does it, all from there on.
    sudden = line[first] < SUDDEN * line.get(first - 1, 0.0)
    named = [first] if sudden else list(range(first, end + 1))
    evidence = [
        Evidence(
            f"relative residual after layer {last}",
            line[last],
            line[0],
            "the same tokens when they enter",
        )
    ]
    if last in cosine and cosine[last] == cosine[last]:
        what = f"mean cosine between tokens after layer {last}"
        if cosine[last] > NEAR_ONE:
            # Three digits would round it to 1, and how far it is from there is what tells.
            before = 1 - cosine[0] if 0 in cosine else ""
            evidence.append(
                Evidence(f"1 minus the {what}", 1 - cosine[last], before, "at the entry")
            )
        else:
            evidence.append(Evidence(what, cosine[last], cosine.get(0, ""), "at the entry"))
    most = max(value for at, value in line.items() if at >= first)
    in_the_end = f", after layer {last} by {line[last]:.2g}" if most > line[last] else ""
    remedy = (
        "Put the norm before the branch (pre-norm), or use DeepNorm's scales; warm the rate up."
    )
    if not post:
        remedy = "Add the skip around every sublayer, or draw the branches smaller."
    if not drawn:
        remedy = "Go back to an earlier checkpoint, and train with a smaller rate and a warm-up."
    return rule.finding(
        f"Tokens become equal in the {stack}: from {layers_text([first], depth)} on they differ by "
        f"at most {most:.2g} of their size{in_the_end}, and by {line[0]:.2g} when they enter.",
        stack=stack,
        layers=named,
        severity="serious" if line[last] < 1e-3 else None,
        evidence=evidence,
        ruled_out=["inputs that are alike: the tokens differ when they enter"],
        cause=(
            f"{depth} post-norm layers as drawn: every norm shrinks the skip beside the branch, which mixes tokens"
            if post and drawn
            else "branches that mix tokens without a skip that keeps them apart"
            if drawn
            else "training that pulled all tokens into one direction"
        ),
        remedy=remedy,
        quantity="tokens.relative_residual",
    )
