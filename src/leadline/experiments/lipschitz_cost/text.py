"""What rose with the Lipschitz constant of the MLPs, in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from leadline.reading.show.panels import Line, Table

if TYPE_CHECKING:
    from leadline.experiments.lipschitz_cost.experiment import MlpCost

__all__ = ["CLAIMS", "remarks", "rising_draws", "tables"]


def rising_draws(found: Sequence[Sequence[MlpCost]]) -> dict[str, int]:
    """In how many draws each quantity is larger at the largest scale than at the smallest."""
    ends = list(zip(found[0], found[-1], strict=True))
    return {
        what: sum(_of(last, what) > _of(first, what) for first, last in ends) for what in CLAIMS
    }


def _of(cost: MlpCost, what: str) -> float:
    columns = (
        cost.residuals[-1],
        cost.absolute_residual,
        cost.change,
        cost.variance,
        cost.relative_variance,
    )
    return dict(zip(CLAIMS, columns, strict=True))[what]


def remarks(lines: Sequence[Line], rising: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Say what rose; `rising` tells of every network in how many draws each quantity did."""
    answers: dict[str, list[bool]] = {}
    for panel in dict.fromkeys(line.panel for line in lines):
        here = [line for line in lines if line.panel == panel]
        draws = here[0].facts["draws"]
        told: list[str] = []
        for what, values in _quantities(here).items():
            rose = rising[panel][what]
            told.append(f"{what} {_moved(values)} (up in {rose} of {draws} draws)")
            answers.setdefault(what, []).append(rose == draws)
        first, last = here[0].facts, here[-1].facts
        yield (
            f"{panel}: with MLP weights {last['scale'] / first['scale']:g} times as large lambda "
            f"is {last['lipschitz'] / first['lipschitz']:.3g} times as large; {', '.join(told)}."
        )
    networks = len(next(iter(answers.values())))
    claims = "; ".join(f"{claim}: {sum(answers[what])}" for what, claim in CLAIMS.items())
    yield (
        "What the note says, and of how many of these "
        f"{networks} networks it is true from the smallest scale to the largest, in every draw: "
        f"{claims}."
    )


def tables(lines: Sequence[Line]) -> Iterator[Table]:
    """One table of each network: what was measured at every scale."""
    for panel in dict.fromkeys(line.panel for line in lines):
        yield Table(
            panel,
            (
                "scale of the MLPs",
                "lambda",
                "output change",
                "largest found",
                "gradient variance",
                "over squared mean",
                "residual",
                "relative",
            ),
            tuple(
                (
                    line.facts["scale"],
                    line.facts["lipschitz"],
                    line.facts["output_change"],
                    line.facts["largest_output_change"],
                    line.facts["gradient_variance"],
                    line.facts["relative_gradient_variance"],
                    line.facts["absolute_residual"],
                    line.values[-1],
                )
                for line in lines
                if line.panel == panel
            ),
        )


CLAIMS = {
    "the relative residual after the last layer": "a larger lambda slows collapse",
    "the residual itself": "a larger lambda keeps the residual larger",
    "the output change": "a larger lambda makes the output more sensitive to the input",
    "the gradient variance": "a larger lambda raises the variance of gradients",
    "the gradient variance over the squared mean": "gradients become noisier for their size",
}
_FACTS = (
    "absolute_residual",
    "output_change",
    "gradient_variance",
    "relative_gradient_variance",
)
"""The facts of a line that the claims after the first are about."""


def _quantities(lines: Sequence[Line]) -> dict[str, list[float]]:
    """What a statement is about, over the scales."""
    columns = [[float(line.facts[key]) for line in lines] for key in _FACTS]
    return dict(zip(CLAIMS, [[line.values[-1] for line in lines], *columns], strict=True))


def _rises(values: Sequence[float]) -> bool:
    """Whether every value lies above the one before it."""
    return all(after > before for before, after in pairwise(values))


def _moved(values: Sequence[float]) -> str:
    """Say how a quantity went from the smallest scale to the largest."""
    ratio = values[-1] / values[0]
    way = "rises" if ratio > 1.0 else "falls"
    steady = _rises(values) or _rises([-value for value in values])
    return f"{way} {'steadily ' if steady else 'unsteadily '}to {ratio:.3g} times"
