"""Histories of training runs made by hand: each gauge is a function of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from leadline.instruments.passes.probes.attention import ENTROPY, LOGIT_STD
from leadline.instruments.passes.probes.extremes import LARGEST
from leadline.instruments.passes.probes.gradient import PARAMETERS, STREAM
from leadline.instruments.passes.probes.stream import NORM
from leadline.instruments.passes.probes.update import BF16
from leadline.instruments.passes.probes.update import NORM as UPDATE_NORM
from leadline.instruments.passes.token_quantities import COSINE
from leadline.reading.watch.alarm import ALARMS
from leadline.reading.watch.history import History
from leadline.record import Finding, Quantity, Reading
from leadline.record.rows.site import RUN, Site
from leadline.record.run.watching import OF_THE_RUN, OF_THE_WEIGHTS

Course = Callable[[int], float]
QUANTITIES: dict[str, Quantity] = {
    one.name: one
    for one in (
        *OF_THE_RUN, *OF_THE_WEIGHTS, LOGIT_STD, ENTROPY, LARGEST, PARAMETERS, STREAM, NORM, BF16, COSINE,
        UPDATE_NORM,
    )
}  # fmt: skip
ROLES = {1: "attention", 2: "mlp"}


def sites_of(quantity: str, layers: Iterable[int], stack: str = "stack") -> list[Site]:
    """The sites of a quantity in a model whose blocks have attention and an MLP."""
    lives_on = QUANTITIES[quantity].lives_on
    if lives_on == "run":
        return [RUN]
    if lives_on == "stream":
        return [Site(stack, layer) for layer in layers]
    writes = (1,) if quantity.startswith("attention") else (1, 2)
    return [Site(stack, layer, write, ROLES[write]) for layer in layers for write in writes]


def noise(scale: float, *, seed: int = 0) -> Course:
    """A factor exp(scale z) at every step, the same whenever it is asked."""
    return lambda step: float(np.exp(scale * np.random.default_rng((seed, step)).normal()))


def warnings_of(
    alarm: str,
    gauges: Mapping[str, Mapping[int, Course] | Course],
    *,
    steps: int = 200,
    every: int = 5,
    stack: str = "stack",
) -> list[Finding]:
    """What one alarm says sample by sample, of gauges by layer or of the run; losses at every update."""
    history = History(QUANTITIES.values())
    said: list[Finding] = []
    for step in range(1, steps + 1):
        sampled = step == 1 or step % every == 0
        rows: list[Reading] = []
        for name, course in gauges.items():
            if not sampled and name != "train.loss":
                continue
            courses = {0: course} if callable(course) else course
            for layer, one in courses.items():
                rows += [
                    Reading(name, site, QUANTITIES[name].headline, one(step), step=step)
                    for site in sites_of(name, [layer], stack)
                ]
        history.add(rows)
        if sampled and all(need in history for need in ALARMS.get(alarm).needs):
            said += ALARMS.get(alarm).look(history)
    return said


def first_steps(warnings: Iterable[Finding]) -> list[int]:
    """The steps at which warnings were said."""
    return [one.details["step"] for one in warnings]
