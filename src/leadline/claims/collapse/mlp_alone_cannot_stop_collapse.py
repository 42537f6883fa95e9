"""MLPs without a skip are said to be unable to stop the double exponential loss.

Read for the note's own experiment, the part "claim": MLP only, its residual followed below rounding,
triples its logarithm. Carried to other MLPs it fails: after attention a -> a tanh(a^2) the MLP
z -> clip(g z, -1, 1), made of two ReLU units, has a stable pair +-1 for g = 2: two tokens stay apart
for ever. There the bound's condition c r^2 < 1 fails, as it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves

DEPTH, GAIN = 30, 2.0


@claim(
    "mlp-alone-cannot-stop-collapse",
    group="collapse",
    notes=("deep-dive",),
    title="MLPs without a skip cannot stop the collapse",
    formula=r"X^{l+1} = f(P X^l W) \Rightarrow \mathrm{res}(X^L) \to 0",
    plain="X^{l+1} = f(P X^l W) ⇒ res(X^L) → 0",
    says="MLPs slow the loss of rank, but without skip connections they cannot keep the residual from "
    "vanishing double exponentially.",
    correction="Tokens that are near each other cannot be saved, since a layer cubes small residuals. An "
    "MLP with enough gain keeps tokens apart that are far: then $c \\, r^2$ of the bound is not below 1.",
    why="In the note's experiment with MLPs only, the logarithm of the residual grew {ratio:.4f} times in "
    "the last layer: the collapse is as cubic as without. But two ReLU units that double their input and "
    "cut it off keep two tokens at {kept:.2f} of their first residual after {depth:.0f} layers; with gain "
    "1 instead of 2 it is 10 to the power {weak:.2e}.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            3.0,
            within=0.01,
            label="ratio of log residuals, MLP only, last layer",
            because="A cubic collapse gives 3 plus log c over log r, which is below 0.01 here.",
        ),
        Check(
            "kept",
            "reach",
            "at most",
            1e-3,
            label="share of the residual left with a strong MLP",
            because="Collapsed is read as at least a thousandfold smaller.",
            log=True,
        ),
        Check(
            "weak",
            "correction",
            "at most",
            -3.0,
            label="log₁₀ of that share with a weak MLP",
            because="Collapsed is read as at least a thousandfold smaller.",
        ),
        Check(
            "condition",
            "correction",
            "at least",
            1.0,
            label="c r² of the bound with the strong MLP",
            because="Below 1 the theorem would force the collapse.",
        ),
    ),
    seconds=0.2,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The note's curve, and two tokens with a clipping MLP of two gains."""
    from dataclasses import replace

    from leadline.claims.collapse._mlps import hat_stack
    from leadline.claims.collapse._stacks import two_tokens
    from leadline.theory.rank_collapse.collapse_published import published_factor
    from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

    logs = curves(trials, "true")["MLP only"]
    strong, weak = (hat_stack(gain=gain, depth=DEPTH) for gain in (GAIN, 1.0))
    facts = two_tokens(0.9, query_key=1.0, value=1.0, depth=1).facts
    assert facts is not None
    # up = (g, g): column sums g, row sum 2 g; down = (1, -1)': column sum 2, row sums 1.
    lipschitz = composite_lipschitz("relu", GAIN, 2.0 * GAIN, 2.0, 1.0)
    factor = published_factor(
        replace(facts, layers=(replace(facts.layers[0], lipschitz=lipschitz),))
    )
    assert factor is not None
    sites = tuple(float(site) for site in range(DEPTH + 1))
    return Measured(
        {
            "depth": float(DEPTH),
            "ratio": logs[-1] / logs[-2],
            "kept": 10.0 ** float(strong.log10_residual[-1] - strong.log10_residual[0]),
            "weak": float(weak.log10_residual[-1] - weak.log10_residual[0]),
            "condition": 10.0 ** (factor + 2.0 * facts.log10_composite[0]),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "note, MLP only": (sites[:5], tuple(logs[:5])),
                "two tokens, gain 1": (sites[:5], tuple(map(float, weak.log10_residual[:5]))),
                "two tokens, gain 2": (sites, tuple(map(float, strong.log10_residual))),
            },
        ),
    )
