"""What a large Lipschitz constant of the MLPs costs.

The long note "Deep Dive into Transformer Architecture" says in its section 3 that an MLP with a
larger Lipschitz constant slows rank collapse, and that the price is less robustness against changes
of the input and a larger variance of the gradients. It measures none of it. Here the weights of all
MLPs of small byte-level Transformers are multiplied by 0.5, 1, 2 and 4, and these are measured:

    lambda       Lip(act) |W1|_{1,inf} |W2|_{1,inf}, the geometric mean over the layers; c^2 for c
    residual     |res X|_F / |X|_F of every layer, res X = X - 1x', x the mean of the tokens; and
                 |res X|_F itself after the last layer
    change       |f(x + e) - f(x)| / |e|, x the embedded tokens, f the logits, e small and random
    largest      the same for the worst e that a few power iterations on J'J find, J = df/dx
    variance     tr Cov(g) over batches, g the gradient of the next-token loss; and over |E g|^2

Three networks that share their weights: pre-norm with skip connections, the same without them, and
without norms either, which is what the theorem on MLPs is about. All are causal, as the loss asks
for: collapse is exponential then, not double exponential. Everything is in float64; numbers are
geometric means over draws of the weights. A statement counts as true of a network only where it is
true of every draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from leadline.errors import InputError, Progress
from leadline.experiments.lipschitz_cost.text import remarks, rising_draws, tables
from leadline.experiments.materials.sentences import sentence_rows
from leadline.experiments.outcome.outcome import Outcome
from leadline.parts import Recipe, Transformer
from leadline.reading.show.panels import Line
from leadline.theory.rank_collapse.lipschitz import composite_lipschitz

__all__ = ["NETWORKS", "SCALES", "MlpCost", "lipschitz_cost"]


SCALES = (0.5, 1.0, 2.0, 4.0)
NETWORKS: dict[str, dict[str, str]] = {
    "pre-norm": {},
    "without skip": {"connection": "none"},
    "without skip and norm": {"connection": "none", "norm": "none"},
}
ACTIVATION = "gelu"
STEP = 1e-5
"""The size of a perturbation relative to the input."""
DIRECTIONS = 8
POWER_STEPS = 8
EXAMPLES, LENGTH = 4, 32
BATCHES, BATCH = 16, 4


@dataclass(frozen=True)
class MlpCost:
    """What was measured of one network."""

    lipschitz: float
    change: float
    largest: float
    variance: float
    relative_variance: float
    absolute_residual: float
    residuals: tuple[float, ...]

    def numbers(self) -> tuple[float, ...]:
        return (
            self.lipschitz,
            self.change,
            self.largest,
            self.variance,
            self.relative_variance,
            self.absolute_residual,
            *self.residuals,
        )


def lipschitz_cost(
    *,
    scales: Sequence[float] = SCALES,
    depth: int = 6,
    width: int = 64,
    heads: int = 4,
    draws: int = 4,
    batches: int = BATCHES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """What larger MLP weights do to collapse, to robustness and to the variance of gradients.

    `scales` multiply the weights of the MLPs, both matrices of each; `draws` is how many networks
    are drawn, `batches` over how many batches the variance of the gradient is taken.
    """
    if len(scales) < 2 or min(scales) <= 0.0 or list(scales) != sorted(set(scales)):
        raise InputError(
            f"The scales are {list(scales)}; give at least two, above 0, the smallest first."
        )
    if draws < 1 or batches < 2:
        raise InputError(
            f"{draws} draws and {batches} batches were asked for; a draw and two batches are the "
            "least."
        )
    tokens = _bytes(batches * BATCH + EXAMPLES, seed=seed)
    lines: list[Line] = []
    costs: dict[str, list[list[MlpCost]]] = {name: [] for name in NETWORKS}
    total = len(NETWORKS) * len(scales)
    for name, fields in NETWORKS.items():
        for scale in scales:
            if progress is not None:
                progress(f"{name}, MLP weights times {scale:g}", len(lines), total)
            drawn = [
                _cost(
                    _model(scale, depth, width, heads, seed=1000 * seed + draw, **fields),
                    tokens,
                    seed,
                )
                for draw in range(draws)
            ]
            costs[name].append(drawn)
            lines.append(_line(name, scale, drawn))
    return Outcome(
        experiment="lipschitz-cost",
        title="What a large Lipschitz constant of the MLPs costs",
        value_label="|res X|_F / |X|_F",
        lines=tuple(lines),
        remarks=tuple(remarks(lines, {name: rising_draws(found) for name, found in costs.items()})),
        records={},
        tables=tuple(tables(lines)),
        captioned=True,
    )


# --- the networks --------------------------------------------------------------------------


def _model(
    scale: float, depth: int, width: int, heads: int, *, seed: int, **fields: str
) -> Transformer:
    recipe = Recipe(
        depth=depth,
        width=width,
        heads=heads,
        mlp=ACTIVATION,
        init="xavier",
        vocabulary=256,
        context=LENGTH,
    )
    model = Transformer(recipe.but(**fields), seed=seed).double()
    with torch.no_grad():
        for up, down in _matrices(model):
            up.mul_(scale)
            down.mul_(scale)
    return model


def _matrices(model: Transformer) -> Iterator[tuple[Tensor, Tensor]]:
    """The two matrices of every MLP."""
    for sublayer in model.sublayers():
        weights = dict(sublayer.branch.weights())
        if "up" in weights:
            yield weights["up"], weights["down"]


def _bytes(windows: int, *, seed: int) -> Tensor:
    """Drawn English sentences as bytes, [window, token]."""
    length, rows = windows * LENGTH, max(1, windows * LENGTH // 40)
    _, texts = sentence_rows([12] * rows, lambda text: [0] * len(text.split()), seed=seed)
    stream = ". ".join(texts).encode()
    stream *= 1 + length // len(stream)
    return torch.tensor(list(stream[:length])).view(windows, LENGTH)


# --- what is measured ----------------------------------------------------------------------


def _cost(model: Transformer, tokens: Tensor, seed: int) -> MlpCost:
    shown, rest = tokens[:EXAMPLES], tokens[EXAMPLES:]
    change, largest = _sensitivity(model, shown, seed=seed)
    variance, relative = _gradient_variance(model, rest)
    absolute, residuals = _residuals(model, shown)
    return MlpCost(
        lipschitz=_lipschitz(model),
        change=change,
        largest=largest,
        variance=variance,
        relative_variance=relative,
        absolute_residual=absolute,
        residuals=residuals,
    )


def _lipschitz(model: Transformer) -> float:
    """lambda, the geometric mean over the layers."""
    logs = [
        math.log(
            # Linear layers hold the transposes of the matrices that act from the right.
            composite_lipschitz(ACTIVATION, _row(up), _column(up), _row(down), _column(down))
        )
        for up, down in _matrices(model)
    ]
    return math.exp(sum(logs) / len(logs))


def _row(weight: Tensor) -> float:
    return float(weight.detach().abs().sum(1).max())


def _column(weight: Tensor) -> float:
    return float(weight.detach().abs().sum(0).max())


@torch.no_grad()
def _residuals(model: Transformer, ids: Tensor) -> tuple[float, tuple[float, ...]]:
    """The residual after the last layer and the relative ones after every layer.

    Geometric means over the examples.
    """
    found: list[tuple[float, float]] = []

    def see(_module: object, _inputs: object, x: Tensor) -> None:
        rest = _length(x - x.mean(1, keepdim=True))
        found.append((_mean(rest), _mean(rest / _length(x))))

    hooks = [block.register_forward_hook(see) for block in model.blocks]
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return found[-1][0], tuple(relative for _, relative in found)


def _sensitivity(model: Transformer, ids: Tensor, *, seed: int) -> tuple[float, float]:
    """|f(x + e) - f(x)| / |e| for random e (its root mean square), and for the worst e found."""
    moved: list[Tensor] = []

    def embedded(_module: object, _inputs: object, x: Tensor) -> Tensor:
        return x + moved[-1] if moved else x

    def run(e: Tensor) -> Tensor:
        moved.append(e)
        try:
            return model(ids)
        finally:
            moved.pop()

    hook = model.embedding.register_forward_hook(embedded)
    try:
        with torch.no_grad():
            positions = torch.arange(ids.shape[1])
            x = model.embedding(ids, positions, None)
        generator = torch.Generator().manual_seed(seed)
        squares: list[Tensor] = []
        with torch.no_grad():
            before = run(torch.zeros_like(x))
            for _ in range(DIRECTIONS):
                e = torch.randn(x.shape, generator=generator, dtype=x.dtype)
                e = STEP * _length(x) / _length(e) * e
                squares.append((_length(run(e) - before) / _length(e)).square())
        change = float(torch.stack(squares).mean().sqrt())
        largest = _largest(run, torch.randn(x.shape, generator=generator, dtype=x.dtype))
    finally:
        hook.remove()
    return change, largest


def _largest(run: Callable[[Tensor], Tensor], start: Tensor) -> float:
    """The largest |J e| / |e| that power iterations on J'J reach, over the examples.

    J'u comes from a backward pass, and J e from the gradient of <J'u, e> with respect to u.
    """
    at = torch.zeros_like(start, requires_grad=True)
    direction = start / _length(start)
    gain = torch.zeros(len(start), 1, 1, dtype=start.dtype)
    with sdpa_kernel(SDPBackend.MATH):  # the kernel that can be differentiated twice
        output = run(at)
        probe = torch.zeros_like(output, requires_grad=True)
        (pulled,) = torch.autograd.grad(output, at, probe, create_graph=True)
        for _ in range(POWER_STEPS):
            (pushed,) = torch.autograd.grad(pulled, probe, direction, retain_graph=True)
            gain = _length(pushed)
            (back,) = torch.autograd.grad(output, at, pushed, retain_graph=True)
            direction = back / _length(back)
    return float(gain.max())


def _mean(x: Tensor) -> float:
    """The geometric mean."""
    return float(x.log().mean().exp())


def _length(x: Tensor) -> Tensor:
    """The norm of every example."""
    return x.detach().square().sum((-2, -1), keepdim=True).sqrt()


def _gradient_variance(model: Transformer, tokens: Tensor) -> tuple[float, float]:
    """tr Cov(g) over batches, and over |E g|^2."""
    weights = list(model.parameters())
    gradients: list[Tensor] = []
    for ids in tokens.split(BATCH):
        found = torch.autograd.grad(model.loss(ids), weights, allow_unused=True)
        gradients.append(torch.cat([g.flatten() for g in found if g is not None]))
    stacked = torch.stack(gradients)
    mean = stacked.mean(0)
    variance = float((stacked - mean).square().sum() / (len(stacked) - 1))
    return variance, variance / float(mean.square().sum())


# --- what it comes to ----------------------------------------------------------------------


def _line(name: str, scale: float, found: Sequence[MlpCost]) -> Line:
    logs = torch.tensor([cost.numbers() for cost in found], dtype=torch.float64).log().mean(0)
    lipschitz, change, largest, variance, relative, absolute, *residuals = logs.exp().tolist()
    return Line(
        panel=name,
        name=f"MLP weights times {scale:g}",
        values=tuple(residuals),
        facts={
            "scale": scale,
            "lipschitz": lipschitz,
            "output_change": change,
            "largest_output_change": largest,
            "gradient_variance": variance,
            "relative_gradient_variance": relative,
            "absolute_residual": absolute,
            "draws": len(found),
        },
    )
