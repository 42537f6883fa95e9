"""N05: the constant below a norm's root is not small against what it is added to.

Thresholds: eps above a tenth of the mean square that enters (it then takes 5 % off what leaves) and
above 1e-4; or an eps unlike that of the twin or of the other norms by a factor of 10, above a
hundredth of the mean square. In fresh models with norms behind their branches (OLMo 2) the usual 1e-5
is far above the mean square that enters, by design: hence the floor of 1e-4.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, site_text, stack_layers
from leadline.record.rows.finding import Finding

SHARE = 0.1
LEAST = 1e-4
ODD = 10.0
ODD_SHARE = 0.01


@rule(
    "N05",
    "norm-eps-large",
    severity="warning",
    basis="law",
    needs=("norm.eps", "norm.input"),
    summary="The eps of a norm is not small against the mean square that it divides by.",
    why="Such a norm no longer normalises: small streams pass as they are, and what a conversion takes "
    "for a rounding constant changes every layer.",
    is_not="An eps that is small against what enters, however large it is.",
    false_alarms="A norm of keys and queries that are tiny by design.",
    remedy="Use the eps of the configuration that the model was trained with.",
    sources=("https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/5712",),
    explains=(
        "writes-drowned", "unlike-its-family", "norm-missing", "positions-unused",
        "attention-uniform", "gradient-vanishing", "depth-unused", "tokens-equal",
        "loss-worse-than-unigram", "loss-worse-than-uniform", "bfloat16-write-loss",
    ),
    example="eps-large",
)  # fmt: skip
def norm_eps_large(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding per stack, with the norm whose eps is largest against its input."""
    eps, inputs = case.values("norm.eps"), case.values("norm.input")
    usual = median(eps.values()) if eps else 0.0
    large: list[CasePlace] = []
    for place, value in eps.items():
        square = inputs.get(place, 0.0)
        if square <= 0:
            continue
        twin = case.values("norm.eps", "twin").get(place)
        odd = max(value / (twin or value), value / (usual or value)) >= ODD
        if (value > SHARE * square and value > LEAST) or (odd and value > ODD_SHARE * square):
            large.append(place)
    for stack, numbers in stack_layers(large).items():
        places = [place for place in large if place.stack == stack]
        worst = max(places, key=lambda place: eps[place] / inputs[place])
        layers = [layer for layer in numbers if layer]
        name, names = case.parameter(worst), [case.parameter(place) for place in places]
        at = site_text(case, stack, layers)
        twin = case.values("norm.eps", "twin").get(worst)
        target = twin if twin and twin < eps[worst] else min(usual, 1e-5)
        yield rule.finding(
            f"The eps of {len(places)} norm{'s' if len(places) > 1 else ''} in {at} is too large: "
            f"{name} adds {eps[worst]:.3g} to a mean square of {inputs[worst]:.3g}.",
            stack=None if stack == OUTSIDE else stack,
            layers=layers,
            parameter=name,
            evidence=[
                Evidence(f"eps of {name}", eps[worst], target,
                         "the twin" if twin and twin < eps[worst] else "the other norms"),
                Evidence(f"mean square that enters {name}", inputs[worst]),
            ],
            cause="a default that the configuration should have replaced",
            remedy=Remedy(
                f"Set eps of {names_text(names)} to {target:.3g}.",
                edit={"edit": "set-eps", "modules": names, "value": target},
            ),
            quantity="norm.eps",
        )  # fmt: skip
