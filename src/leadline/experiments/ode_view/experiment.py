"""A residual network seen as an ordinary differential equation: where that holds, and where not.

The short note calls a residual network "exactly" the discretisation of an equation x' = f(x), whose
stability is easy to control, and says that the norm of post-norm destroys its continuity. Here f is
the branch of one random pre-norm block, f(x) = B(x) - x, with the same weights in every layer, in
float64. Depth L is doubled again and again:

    step T/L            x <- x + (T/L) f(x)             explicit Euler to the flow x' = f(x)
    step T/L, normed    x <- N(x + (T/L) f(x))          to the flow x' = P(x) f(x) on the sphere
    step 1              x <- x + f(x)                   what a residual network really does

N is LayerNorm without gain and eps, P(x) = I - 11'/d - xx'/d its Jacobian at a token of the sphere
(mean 0, |x|² = d; see `theory.norm_jacobian`): N(x + h f) = x + h P f + O(h²), so the second is a
projected Euler method. The error |x_L - x(T)|_F / |x(T)|_F is taken against the flow, computed with
so many steps of Runge and Kutta's fourth order that its own error is at most 1/20 of every error
judged by it (see `_reference_flow`); what cannot be judged so is left out, and no order is fitted.
The order of convergence is minus the slope of log error over log L. With weights of its own in every layer (step T/L) there is no one f: updates
average out, and the stream moves by |x_L - x_0| ~ L^(-1/2).

Explicit Euler with step h is stable along an eigenvalue lambda of f' where |1 + h lambda| <= 1. A
layer has h = 1 and f' = J - I, so 1 + lambda are the eigenvalues of the block's Jacobian J. They
are computed densely for blocks of two designs. An eigenvalue with Re lambda >= 0 grows at any step,
because the flow itself grows there; the others are stable up to h = -2 Re lambda / |lambda|². For
f(x) = -3 x the flow falls like e^(-3t), and 20 layers of step 1 give (1 - 3)^20 = 2^20.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import Progress, no_progress
from leadline.experiments.ode_view import OdeViewOptions
from leadline.experiments.ode_view.reference_flow import (
    FINER,
    MOST,
    Field,
    Reference,
    apart,
    followed,
)
from leadline.experiments.outcome.exponent import Exponent, fit_exponent
from leadline.experiments.outcome.outcome import Outcome
from leadline.instruments.passes.measurement import anatomy_of
from leadline.instruments.passes.running import call
from leadline.models.inputs import random_tokens
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.parts import Recipe, Transformer
from leadline.reading.show.panels import Line, Places, Plane, Table

__all__ = ["ode_view"]

EULER, NORMED, WHOLE, OWN = "step T/L", "step T/L, normed", "step 1", "step T/L, own weights"
ERROR, SPECTRUM = "log₁₀ error against the flow", "|1 + λ|, eigenvalues of the Jacobian of a block"
DEPTHS = (8, 16, 32, 64, 128)
DESIGNED = 12
"""The depth of the designs whose eigenvalues are computed."""
LIMIT = "limit 1"
STABLE = 1e-6
"""What |1 + lambda| may pass 1 by: a double eigenvalue is known to the root of eps only."""
RATE, LAYERS = -3.0, 20
"""The note's claim of easy stability, tested on f(x) = RATE x."""
Eigenvalues = NDArray[np.complex128]


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues 1 + lambda of one block, largest first, and the norm of its Jacobian."""

    name: str
    values: Eigenvalues
    norm: float

    @property
    def sizes(self) -> NDArray[np.float64]:
        """|1 + lambda|, largest first."""
        return np.abs(self.values)

    @property
    def unstable(self) -> float:
        """The share of eigenvalues outside of the region of stability at step 1."""
        return float(np.mean(self.sizes > 1.0 + STABLE))

    @property
    def growing(self) -> float:
        """The share along which the flow itself does not fall: Re lambda >= 0."""
        return float(np.mean(self.values.real - 1.0 >= -STABLE))

    @property
    def cured(self) -> float:
        """The share that is unstable at step 1 and stable at a small enough step."""
        falling = self.values.real - 1.0 < -STABLE
        return float(np.mean(falling & (self.sizes > 1.0 + STABLE)))


def ode_view(
    options: OdeViewOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """Order of convergence when depth is doubled and the step halved; stability of single layers."""
    options = options or OdeViewOptions()
    options.check()
    total = options.seeds + 2
    errors: dict[str, dict[int, list[float]]] = {name: {} for name in (EULER, NORMED, WHOLE, OWN)}
    references: list[dict[str, Reference]] = []
    with torch.random.fork_rng(devices=[]):
        for number in range(options.seeds):
            progress(f"seed {options.seed + number}", number, total)
            found, flows = _convergence(options, options.seed + number)
            references.append(flows)
            for name, line in found.items():
                errors[name][options.seed + number] = line
        spectra: list[Spectrum] = []
        for number, (name, fields) in enumerate(_designs(options).items()):
            progress(name, options.seeds + number, total)
            spectra += _spectra(options, name, fields)
    orders = {
        name: fit_exponent(DEPTHS, lines)
        for name, lines in errors.items()
        if all(value > 0 and math.isfinite(value) for line in lines.values() for value in line)
    }
    largest = max(len(one.sizes) for one in spectra)
    return Outcome(
        experiment="ode-view",
        title="A residual network as an ordinary differential equation",
        value_label="",
        lines=(*_error_lines(errors), *_spectrum_lines(spectra, largest)),
        remarks=tuple(_remarks(errors, references, orders, spectra)),
        records={},
        scales={ERROR: "own", SPECTRUM: "own"},
        tables=(_order_table(orders), _stability_table(spectra)),
        captioned=True,
        planes=(_plane(spectra),),
        places={
            ERROR: Places("depth L", tuple(float(depth) for depth in DEPTHS), logarithmic=True),
            SPECTRUM: Places("eigenvalue, largest first", tuple(map(float, range(1, largest + 1)))),
        },
    )


# --- convergence ---------------------------------------------------------------------------------


def _network(options: OdeViewOptions, seed: int, fields: Mapping[str, Any]) -> Stretches:
    """The blocks of a random network in float64 as functions of the stream."""
    plain: dict[str, Any] = {"positions": "none", "mlp": "gelu_tanh", "init": "xavier"}
    sizes = {"width": options.width, "vocabulary": 64, "context": options.tokens}
    heads = 2 if options.width % 2 == 0 else 1
    recipe = Recipe.from_json({**plain, **sizes, "heads": heads, **fields})
    model = Transformer(recipe, seed=seed).double().eval()
    batch = random_tokens(model, examples=1, length=options.tokens, seed=seed)
    (stack,) = anatomy_of(model, batch).stacks
    return Stretches(model, stack, lambda: call(model, batch))


def _field(stretches: Stretches, layer: int) -> tuple[Field, Tensor]:
    """The branches of a block as a vector field, f(x) = B(x) - x, and the stream that enters."""
    block, x = stretches.function(layer - 1, layer)
    block(x)  # the first call is compared with the real pass

    def field(at: Tensor) -> Tensor:
        with torch.no_grad():
            return block(at) - at

    return field, x.detach().double()


def _convergence(
    options: OdeViewOptions, seed: int
) -> tuple[dict[str, list[float]], dict[str, Reference]]:
    """The errors of one seed over the depths, how far own weights move the stream, the flows."""
    one = _network(options, seed, {"depth": 1})
    field, x = _field(one, 1)
    sphere = _normed(x)
    steps = {depth: options.time / depth for depth in DEPTHS}
    ends = {
        EULER: [_euler(field, x, h, depth) for depth, h in steps.items()],
        NORMED: [_projected(field, sphere, h, depth) for depth, h in steps.items()],
        WHOLE: [_euler(field, x, 1.0, depth) for depth in DEPTHS],
    }
    flow = followed(field, x, options.time, judging=[*ends[EULER], *ends[WHOLE]])
    normed = followed(
        lambda at: _tangent(at, field(at)), sphere, options.time, judging=ends[NORMED]
    )
    flows = {EULER: flow, NORMED: normed, WHOLE: flow}
    many = _network(options, seed, {"depth": max(DEPTHS)})
    own = [_field(many, layer)[0] for layer in range(1, max(DEPTHS) + 1)]
    found = {name: [flows[name].judged(end) for end in several] for name, several in ends.items()}
    found[OWN] = []
    for depth, h in steps.items():
        at = x
        for layer in own[:depth]:
            at = at + h * layer(at)
        found[OWN].append(apart(at, x))
    return found, flows


def _euler(field: Field, x: Tensor, h: float, steps: int) -> Tensor:
    for _ in range(steps):
        x = x + h * field(x)
    return x


def _projected(field: Field, x: Tensor, h: float, steps: int) -> Tensor:
    """Explicit Euler, back to the sphere after every step."""
    for _ in range(steps):
        x = _normed(x + h * field(x))
    return x


def _normed(x: Tensor) -> Tensor:
    """LayerNorm without gain and eps: the sphere of radius sqrt(d) orthogonal to 1."""
    x = x - x.mean(-1, keepdim=True)
    return x / x.square().mean(-1, keepdim=True).sqrt()


def _tangent(x: Tensor, u: Tensor) -> Tensor:
    """P(x) u at a token of the sphere: u without its mean and without its part along x."""
    u = u - u.mean(-1, keepdim=True)
    return u - x * (u * x).mean(-1, keepdim=True) / x.square().mean(-1, keepdim=True)


# --- stability -----------------------------------------------------------------------------------


def _designs(options: OdeViewOptions) -> dict[str, dict[str, Any]]:
    chosen = f"{options.connection}, {options.placement}, {options.init}"
    given = {
        "connection": options.connection,
        "placement": options.placement,
        "init": options.init,
    }
    return {"identity, pre, xavier": {}, chosen: given}


def _spectra(options: OdeViewOptions, name: str, fields: dict[str, Any]) -> list[Spectrum]:
    """The eigenvalues of the first and the last block of a design."""
    stretches = _network(options, options.seed, {"depth": DESIGNED, **fields})
    found: list[Spectrum] = []
    for layer in (1, DESIGNED):
        block, x = stretches.function(layer - 1, layer)
        jacobian = dense(Linearised(block, x))[0].double().numpy()
        values = np.linalg.eigvals(jacobian).astype(np.complex128)
        order = np.argsort(-np.abs(values), kind="stable")
        norm = float(np.linalg.norm(jacobian, 2))
        found.append(Spectrum(f"{name}, block {layer}", values[order], norm))
    return found


def _powers(rate: float, h: float, layers: int) -> float:
    """|x| after explicit Euler on x' = rate x from 1."""
    x = 1.0
    for _ in range(layers):
        x += h * rate * x
    return abs(x)


# --- what is told --------------------------------------------------------------------------------


def _error_lines(errors: dict[str, dict[int, list[float]]]) -> Iterator[Line]:
    for name in (EULER, NORMED, WHOLE):
        with np.errstate(divide="ignore"):
            logs = np.log10(np.array(list(errors[name].values())))
        spread = logs.std(0, ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else np.array(())
        yield Line(
            ERROR, name, tuple(logs.mean(0).tolist()), errors=tuple(spread.tolist()),
            facts={"model": name},
        )  # fmt: skip


def _spectrum_lines(spectra: list[Spectrum], largest: int) -> Iterator[Line]:
    for one in spectra:
        yield Line(SPECTRUM, one.name, tuple(one.sizes.tolist()), facts={"model": one.name})
    yield Line(SPECTRUM, LIMIT, (1.0,) * largest, faint=True, facts={"model": LIMIT})


def _plane(spectra: list[Spectrum]) -> Plane:
    """lambda in the plane, and the disc |1 + lambda| <= 1 in which a step of Euler is stable."""
    return Plane(
        "λ of F' in the plane, and the disc |1 + λ| ≤ 1 of explicit Euler",
        {
            one.name: tuple((float(v.real) - 1.0, float(v.imag)) for v in one.values)
            for one in spectra
        },
        centre=(-1.0, 0.0),
        radius=1.0,
        region="explicit Euler is stable",
        label="Re λ (up: Im λ)",
    )


def _order_table(orders: dict[str, Exponent]) -> Table:
    return Table(
        "Order of convergence: minus the slope of log error over log L",
        ("order", "standard error", "R²"),
        tuple((-one.slope, one.error, one.r2) for name, one in orders.items() if name != OWN),
        digits=3,
        names=tuple(name for name in orders if name != OWN),
    )


def _stability_table(spectra: list[Spectrum]) -> Table:
    return Table(
        "Stability of one layer as a step of explicit Euler",
        ("largest |1 + λ|", "|J|₂", "share |1 + λ| > 1", "share Re λ >= 0", "share curable"),
        tuple(
            (float(one.sizes[0]), one.norm, one.unstable, one.growing, one.cured) for one in spectra
        ),
        digits=3,
        names=tuple(one.name for one in spectra),
    )


def _remarks(
    errors: dict[str, dict[int, list[float]]],
    references: list[dict[str, Reference]],
    orders: dict[str, Exponent],
    spectra: list[Spectrum],
) -> Iterator[str]:
    for name, flow in ((EULER, "the flow"), (NORMED, "a flow on the sphere of the norm")):
        if name in orders:
            first, last = (float(np.mean([line[at] for line in errors[name].values()])) for at in (0, -1))  # fmt: skip
            yield (
                f"{name}: the error against {flow} goes from {first:.2g} at depth {DEPTHS[0]} to "
                f"{last:.2g} at depth {DEPTHS[-1]}, {_order(orders[name])}."
            )
        yield _known(name, [one[name] for one in references], errors[name])
    yield _step_one(errors[WHOLE])
    if OWN in orders:
        yield (
            "With weights of its own in every layer and step T/L the stream moves less and less: "
            f"|x_L - x_0| / |x_0| ~ {orders[OWN].text}. There is no one equation that it follows."
        )
    for one in spectra:
        yield (
            f"{one.name}: the largest |1 + λ| is {one.sizes[0]:.3g} (|J|₂ is {one.norm:.3g}); "
            f"{one.unstable:.0%} of {len(one.sizes)} eigenvalues lie outside of the region of "
            f"stability. A smaller step would bring {one.cured:.0%} inside; along "
            f"{one.growing:.0%} the flow itself does not fall."
        )
    steps = (1.0, 2.0 / -RATE, 0.5)
    told = ", ".join(f"{_powers(RATE, h, LAYERS):.4g} for step {h:.3g}" for h in steps)
    yield (
        f"f(x) = {RATE:g} x, whose flow falls to e^({RATE:g}t): after {LAYERS} layers from 1, |x| "
        f"is {told}."
    )


def _order(fit: Exponent) -> str:
    spread = "" if math.isnan(fit.error) else f" ± {fit.error:.1g}"
    return f"order {-fit.slope:.3f}{spread} ({fit.seeds} seed{'' if fit.seeds == 1 else 's'})"


def _known(name: str, flows: list[Reference], lines: dict[int, list[float]]) -> str:
    """Say how well the flow is known that errors are taken against, and what that leaves out."""
    own, steps = float(np.max([one.error for one in flows])), max(one.steps for one in flows)
    how = f"give the flow to {own:.1g} or better" if math.isfinite(own) else "do not stay finite"
    known = f"{name}: {steps} steps of Runge and Kutta {how}"
    values = [value for line in lines.values() for value in line]
    left = sum(map(math.isnan, values))
    if left:
        return (
            f"{known}, which has to be 1/{FINER:g} of what it judges: {left} of {len(values)} "
            f"errors are left out, and no order is fitted. More than {MOST} steps are not tried; "
            "choose a shorter time."
        )
    return f"{known}; the smallest error judged by it is {min(values):.1g}."


def _step_one(lines: dict[int, list[float]]) -> str:
    """Say what step 1 does when layers are added: it is another time, not a finer step."""
    first, last = (float(np.mean([line[at] for line in lines.values()])) for at in (0, -1))
    if math.isnan(first) or math.isnan(last):
        return f"{WHOLE}: the flow is not known well enough to tell the distance to it."
    what = "It does not converge" if last >= first else "The error falls here"
    return (
        f"{WHOLE}: the distance to the flow goes from {first:.3g} at depth {DEPTHS[0]} to "
        f"{last:.3g} at depth {DEPTHS[-1]}. {what}: L layers of step 1 are an equation followed "
        "for the time L with a coarse step, not a finer step of one equation."
    )
