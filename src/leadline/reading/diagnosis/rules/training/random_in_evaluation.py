"""T01: the same pass gives different numbers in evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.record.rows.finding import Finding

DROPPING = ("dropout", "bernoulli")
"""What drops numbers at random; anything else that is drawn may be part of the design."""


@rule(
    "T01",
    "random-in-evaluation",
    severity="serious",
    basis="identity",
    needs=("dropouts",),
    summary="Runs the same pass twice in evaluation mode and looks whether the outputs are the same.",
    why="Evaluations cannot be repeated, and every prediction is made by a model with a part missing.",
    is_not="Models that draw numbers by design in evaluation (hashes of a Reformer, masks of an "
    "autoencoder): of these it is a note.",
    false_alarms="Sampling that a model does on purpose with a call that also serves dropout.",
    remedy="Pass `training=self.training` to functional dropout, and dropout_p=0.0 outside of training "
    "to scaled_dot_product_attention; use modules, which follow `model.eval()`.",
    sources=("https://pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html",),
    explains=("residual-missing", "residual-from-wrong-point", "examples-mixed", "positions-wrong"),
    example="dropout-always-on",
)
def random_in_evaluation(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the modules that draw random numbers."""
    facts = case.fact("isolation", {})
    dropouts = case.fact("dropouts", ())
    if dropouts:
        yield rule.finding(
            f"The model is in training mode: {len(dropouts)} dropouts are on, the first at {dropouts[0]}.",
            parameter=dropouts[0],
            evidence=[Evidence("modules that drop numbers at random", len(dropouts), 0)],
            cause="`model.eval()` was not called; everything here was measured in evaluation mode",
            remedy=Remedy(
                "Call model.eval() before evaluating it.", safe=True, edit={"edit": "eval-mode"}
            ),
            severity="warning",
        )
    if not facts.get("random"):
        return
    calls = facts.get("calls", [])
    dropping = [one for one in calls if any(word in one["call"] for word in DROPPING)]
    culprits = dropping or calls
    # One path stands for its likes in other layers: the place is every layer that it is in.
    places = [case.place_of(one["module"]) for one in culprits]
    stacks = Counter(stack for stack, layer in places if stack and layer)
    stack = stacks.most_common(1)[0][0] if stacks else None
    layers = sorted({layer for one, layer in places if one == stack and layer})
    first = culprits[0]["module"] if culprits else ""
    call = culprits[0]["call"] if culprits else "a random call"
    where = first or "the model itself"
    by_design = not dropping and bool(case.fact("intention", {}).get("library"))
    yield rule.finding(
        f"Evaluation is random: {where} calls {call} though the model is in evaluation mode.",
        stack=stack,
        layers=layers,
        parameter=first or None,
        evidence=[
            Evidence("change of the output between two equal passes", float(facts["random"]), 0.0)
        ],
        ruled_out=["every module is in evaluation mode, so it is no forgotten `model.eval()`"],
        cause="functional dropout is called without `training=self.training`"
        if dropping
        else "random numbers are drawn in every pass",
        remedy=Remedy(
            f"In the forward of {where}, pass training=self.training (or dropout_p=0.0 in evaluation).",
            safe=True,
        ),
        severity="note" if by_design else None,
    )
