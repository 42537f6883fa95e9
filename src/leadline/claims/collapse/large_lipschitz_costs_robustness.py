"""A large Lipschitz constant of the MLPs is said to cost robustness against changes of the input.

Read in the setting of the theorem on MLPs, without skip and norm: the change of the output per change of
the input, with MLP weights 8 times as large (lambda 64 times): the part "claim". Carried to what is
trained, pre-norm with skips, the norms take the size of the weights out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.collapse._lipschitz_cost import LIPSCHITZ_COST, grown


@claim(
    "large-lipschitz-costs-robustness",
    group="collapse",
    notes=("deep-dive",),
    title="A larger Lipschitz constant of the MLPs makes the output more sensitive",
    formula=r"\lambda \uparrow \; \Rightarrow \; \frac{\| f(x + e) - f(x) \|}{\| e \|} \uparrow",
    plain="λ ↑ ⇒ ‖f(x + e) − f(x)‖/‖e‖ ↑",
    says="Fighting the collapse with MLPs has a price: a larger Lipschitz constant makes the model less "
    "robust and more sensitive to changes of its input.",
    correction="It holds without norms. With a norm before every branch, as in GPT-2, the size of the MLPs "
    "cancels on the way to the output, whose sensitivity hardly changes.",
    why="The weights of all MLPs were made eight times as large, so that λ grew {lipschitz:.0f} times. "
    "Without skips and norms the change of the logits per change of the input grew {bare:.1e} times. With "
    "skips and a norm before every branch it is {normed:.2f} times what it was: the stream grows too, and "
    "the next norm divides by its size.",
    checks=(
        Check(
            "bare",
            "claim",
            "at least",
            2.0,
            label="growth of the sensitivity, no skip, no norm",
            because="More sensitive is read as at least twice; six layers would allow 64 each.",
            log=True,
        ),
        Check(
            "normed",
            "reach",
            "at least",
            2.0,
            label="the same with skips and pre-norm",
            because="More sensitive is read as at least twice; six layers would allow 64 each.",
            log=True,
        ),
        Check(
            "lipschitz",
            "correction",
            "near",
            64.0,
            within=1e-6,
            label="growth of λ",
            because="λ is a product of two matrices, each eight times as large.",
        ),
        Check(
            "level",
            "correction",
            "near",
            1.0,
            within=0.4,
            label="growth of the sensitivity with skips and pre-norm",
            because="Hardly is read as within 40 per cent; draws scatter by about 10.",
        ),
    ),
    seconds=0.01,
    needs=(LIPSCHITZ_COST,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the growth of both networks."""
    normed = grown(trials, "pre-norm", "output_change")
    return Measured(
        {
            "lipschitz": grown(trials, "without skip and norm", "lipschitz"),
            "bare": grown(trials, "without skip and norm", "output_change"),
            "normed": normed,
            "level": normed,
        }
    )
