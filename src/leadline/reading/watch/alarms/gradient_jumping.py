"""G03: the gradient is many times longer than in the run's own past, as a whole or in one layer.

Of the whole gradient a factor of 8 is enough; of one write or one site of the stream 50, because there are
many of them and each is noisier. Both have to be far outside of the spread of the past as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leadline.reading.show.wording import layer_ranges
from leadline.reading.watch.alarm import Alarm, Evidence, alarm, good_until
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import Departure, LayerPanel, change, panel, place_of, round_to
from leadline.record.rows.finding import Finding

WHOLE = 8.0
"""Times the past. Healthy runs of the tuning set came to 6.6."""
WHOLE_SPREADS = 4.0
ONE = 50.0
"""Times the past of one write, or of one site of the stream. Healthy runs came to 43."""
ONE_SPREADS = 8.0
BY_LAYER = ("gradient.stream", "gradient.parameters")
SILENT = 1e-25
"""The past of a gradient that was zero, from which nothing is a factor: layers that are unfrozen."""
ALWAYS = 0.999
"""A factor of clipping nearer than this to the largest of all is that of every update."""


@alarm(
    "G03",
    "gradient-jumping",
    severity="warning",
    needs=("train.gradient_norm",),
    summary="Looks for a gradient that is many times longer than in the run's own past.",
    why="With plain gradient descent the next update is as many times too long; with Adam it is longer by "
    "less, and the second moment remembers it for long.",
    is_not="The first updates, in which gradients fall by factors; or a batch of rare examples, after "
    "which the gradient is as before.",
    do_now="Clip the gradient, look at the batch of this step, and lower the learning rate if it stays.",
    sources=("https://arxiv.org/abs/1211.5063", "https://arxiv.org/abs/2304.13013"),
)
def gradient_jumping(history: History, alarm: Alarm) -> Iterator[Finding]:
    """Look at the whole gradient, then at each layer; name the layers that jumped most."""
    run = history.of_run("train.gradient_norm")
    whole = None if run is None else panel([run])
    if run is None or whole is None:
        return
    by_layer = [
        (name, measured, change(measured))
        for name in BY_LAYER
        if (measured := panel(history.by_layer(name))) is not None
        and measured.steps[-1] == run.last_step
    ]
    jump = change(whole)
    if jump.factor >= WHOLE and jump.deviation >= WHOLE_SPREADS:
        layers, stack = _worst(by_layer)
        where = f", most at {layer_ranges(layers)}" if layers else ""
        yield _said(
            history, alarm, jump, f"The gradient is {jump.factor:.0f} times as long as before{where}.",
            quantity="train.gradient_norm", value=run.last, usual=float(jump.usual[0]), stack=stack,
            layers=layers,
        )  # fmt: skip
        return
    for name, measured, one in by_layer:
        high = (one.factors >= ONE) & (one.deviations >= ONE_SPREADS) & (one.usual > SILENT)
        if high.any():
            place = measured.rows(high)
            most = float(one.factors[high].max())
            stack = place.sites[int(np.argmax(one.factors[high]))].stack
            layers = place_of(place.sites, stack)
            yield _said(
                history, alarm, one, f"The gradient at {layer_ranges(layers)} is {most:.0f} times as long "
                "as before, while the whole gradient is not.",
                quantity=name, value=float(place.values[:, -1].max()),
                usual=float(one.usual[high].max()), stack=stack, layers=layers,
            )  # fmt: skip
            return


def _worst(
    by_layer: list[tuple[str, LayerPanel, Departure]],
) -> tuple[tuple[int, ...], str | None]:
    """The layers whose parameters' gradient jumped at least half as far as that of the worst."""
    for name, measured, one in by_layer:
        if name == "gradient.parameters":
            factors = np.where(one.usual > SILENT, one.factors, 1.0)
            high = np.log(factors) >= np.log(factors.max()) / 2
            if factors.max() > 1:
                stack = measured.sites[int(np.argmax(factors))].stack
                return place_of(measured.rows(high).sites, stack), stack
    return (), None


def _said(
    history: History, alarm: Alarm, jump: Departure, verdict: str, *, quantity: str, value: float,
    usual: float, stack: str | None, layers: tuple[int, ...],
) -> Finding:  # fmt: skip
    title = history.quantities[quantity].title
    return alarm.warning(
        verdict,
        step=history.step,
        since=jump.since,
        quantity=quantity,
        stack=stack,
        layers=layers,
        evidence=[Evidence(title, round_to(value), round_to(usual), "the run's own past")],
        cause="a batch unlike those before, or weights that have come to where the loss is steep",
        do_now=f"{_first_aid(history, jump.since)} If the loss rises, lower the learning rate and go back "
        f"to a checkpoint of step {good_until(jump.before)} or earlier.",
    )


def _first_aid(history: History, since: int) -> str:
    """Clip, where clipping does not hold the gradient already; look at the batch in any case.

    A factor that is below 1 and always the same is no clipping: the loop divides by its micro-batches.
    """
    clipping = history.of_run("train.clipping")
    if clipping is not None and clipping.last < min(1.0, ALWAYS * float(clipping.values.max())):
        return f"Clipping leaves {clipping.last:.2g} of it. Look at the batch of step {since}."
    return f"Clip the gradient and look at the batch of step {since}."
