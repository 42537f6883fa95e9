"""X04: a short training run on a copy does not lower the loss.

AdamW on a few dozen tokens, again and again: whoever can learn anything learns these. Thresholds: the best
loss of the last fifth is above 0.98 of the first, or the fall is less than a tenth of the twin's. The
models of the zoo lose 20 to 99 % within 20 steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FALL = 0.02
SHARE = 0.1
LEAST_STEPS = 10


@rule(
    "X04",
    "does-not-learn",
    severity="serious",
    basis="outcome",
    needs=("short_run",),
    summary="A short training run on a copy of the model does not lower the loss.",
    why="A model that cannot learn a few dozen tokens by heart cannot learn anything.",
    is_not="A model that knows these tokens already: its loss is near 0 and cannot fall.",
    false_alarms="Fewer than about 20 steps of a large trained model.",
    remedy="See which parameters do not move, and look for what cuts their gradient.",
    sources=("https://github.com/huggingface/peft/issues/1402",),
)
def does_not_learn(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the loss before and after, and the fall with the twin's."""
    run: dict[str, Any] = case.fact("short_run") or {}
    losses: list[float] = run.get("losses") or []
    if run.get("steps", 0) < LEAST_STEPS or not losses:
        return
    unmoved: list[str] = run.get("unmoved") or []
    still = f"; {len(unmoved)} of {run['parameters']} parameters do not move" if unmoved else ""
    evidence = [Evidence("loss after the run", losses[-1], losses[0], "before it")]
    if unmoved:
        evidence.append(Evidence("parameters that do not move", ", ".join(unmoved[:3])))
    if not all(map(math.isfinite, losses)):
        step = next(at for at, loss in enumerate(losses) if not math.isfinite(loss))
        yield _finding(
            rule, f"The loss is not finite after {step} training steps{still}.", evidence, unmoved
        )
        return
    best = min(losses[-max(1, len(losses) // 5) :])
    twin: list[float] = run.get("twin_losses") or []
    twin_fall = twin[0] - min(twin) if twin and all(map(math.isfinite, twin)) else 0.0
    stuck = best > (1 - FALL) * losses[0] and losses[0] > 0.05
    slow = case.at_initialisation and losses[0] - best < SHARE * twin_fall
    if stuck or slow:
        if twin_fall:
            evidence.append(Evidence("fall of the loss", losses[0] - best, twin_fall, "the twin"))
        text = f"The model does not learn: {run['steps']} steps bring its loss from {losses[0]:.3g} to {best:.3g}{still}."
        yield _finding(rule, text, evidence, unmoved)


def _finding(rule: Rule, text: str, evidence: list[Evidence], unmoved: list[str]) -> Finding:
    return rule.finding(
        text,
        parameter=unmoved[0] if unmoved else None,
        evidence=evidence,
        cause="a gradient that does not reach the parameters, or a forward pass that ignores its inputs"
        if unmoved
        else "a forward pass that ignores its inputs, or a loss that steps overshoot",
        remedy=f"Find what keeps the gradient from {unmoved[0]}."
        if unmoved
        else "Check that logits depend on the inputs, and that targets are those of the inputs.",
    )
