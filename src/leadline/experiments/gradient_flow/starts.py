"""Signal and gradient of one untrained design: every site, every write, the last output matrix.

    g_l        dL/dx_l at every site l of the stream, by one backward pass of the model's own loss
    |dL/dW2|   of the output matrix of the last MLP, bias left out (Xiong et al. 2020, arXiv
               2002.04745, theorem 1, is about this matrix)
    m_l        mean square of the stream at site l, over examples, tokens and features
    the split  m_L - m_0 = sum of mean(u^2) + sum of 2 mean(x u) over all writes u, x the stream
               before each: exact where a write is x + u and no norm follows it

Everything is computed in float64 with attention as plain products. A fused kernel computes the
attention weights again in its backward pass, as exp(score - logsumexp): where scores are as large
as in a deep stack without norms, their rounding alone is then larger than any exponent, and the
gradients are wrong by tens of orders of magnitude without being NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from leadline.lab.presets.depth_limits import DESIGNS as PRESET
from leadline.lab.presets.depth_limits import FIXED
from leadline.lab.tasks import Batch, build_task
from leadline.lab.trainer import model_for
from leadline.numerics.tokens import Tokens
from leadline.parts import Recipe, Transformer
from leadline.parts.branches import Run
from leadline.parts.sublayer import Sublayer

__all__ = [
    "ADDS",
    "DESIGNS",
    "Start",
    "Writes",
    "batch_of",
    "built",
    "measured",
    "overflows",
    "plain_attention",
    "seen_writes",
]

DESIGNS: Mapping[str, Mapping[str, Any]] = {
    **{name: PRESET[name] for name in ("pre", "post", "no skip")},
    "no norm": {"connection": "identity", "placement": "none"},
    "scaled pre": {"connection": "weighted(alpha=depth)", "placement": "pre"},
    **{name: PRESET[name] for name in ("gpt2-scaled", "deepnorm")},
}
"""The designs of the depth-limits preset that the notes argue about, a skip without norms (but for
the one before the head), and pre-norm with writes divided by sqrt(2 L): GPT-2's scaling without
GPT-2's small embeddings, which let the first writes weigh much."""
ADDS = ("pre", "no norm", "gpt2-scaled")
"""The designs whose write is x + u and nothing else, so that the split is exact."""


@dataclass(frozen=True)
class Start:
    """What one untrained model of one seed shows."""

    design: str
    depth: int
    seed: int
    weight: float
    """|dL/dW2| of the last block."""
    gradients: tuple[float, ...]
    """|dL/dx_l| at the sites 0 ... L, over all tokens of the batch."""
    squares: tuple[float, ...]
    """m_l at the sites 0 ... L."""
    updates: float
    """Sum of mean(u^2) over the writes."""
    crosses: float
    """Sum of 2 mean(x u) over the writes."""
    cosine: float
    """Mean cosine of two tokens of an example at the last site."""
    loss: float

    @property
    def ratio(self) -> float:
        """|dL/dx_0| / |dL/dx_L|."""
        return self.gradients[0] / self.gradients[-1]

    @property
    def grown(self) -> float:
        """m_L - m_0."""
        return self.squares[-1] - self.squares[0]

    @property
    def scaled_weight(self) -> float:
        """|dL/dW2| times the root mean square of the last site."""
        return self.weight * math.sqrt(self.squares[-1])

    @property
    def finite(self) -> bool:
        """Whether every number is finite and above zero where a logarithm is taken."""
        several = (*self.gradients, *self.squares, self.weight)
        return all(math.isfinite(v) and v > 0.0 for v in several)


@dataclass
class Writes:
    """What every sublayer of one forward pass was given and what its branch returned."""

    states: list[Tensor]
    """The stream before every write, and after the last one."""
    updates: list[Tensor]
    runs: list[Run]

    def sites(self, *, writes: int) -> list[Tensor]:
        """The stream at the sites 0 ... L, `writes` of them to a block."""
        return self.states[::writes]


def built(
    design: str, depth: int, *, width: int, heads: int, length: int, seed: int
) -> Transformer:
    """The untrained model of a design: Xavier's init wherever the design has none of its own."""
    fields = {"init": FIXED["init"], "head": FIXED["head"], **DESIGNS[design]}
    recipe = Recipe(depth=depth, width=width, heads=heads, **fields)
    return model_for(recipe, build_task(f"stdlib(length={length})"), seed=seed).eval()


def batch_of(length: int, *, examples: int, seed: int) -> Batch:
    """Bytes of Python's own library, with the byte that follows each."""
    return build_task(f"stdlib(length={length})").train(0, examples, seed=seed)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as products of matrices, in both directions: see the module's first lines."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def seen_writes(model: Transformer) -> Iterator[Writes]:
    """Keep what passes by the sublayers of the passes inside; the tensors keep their graph."""
    seen = Writes([], [], [])

    def before(_: nn.Module, given: tuple[Any, ...]) -> None:
        seen.states.append(given[0])
        seen.runs.append(given[1])

    def returned(_: nn.Module, _given: object, update: Tensor) -> None:
        seen.updates.append(update)

    def after(_: nn.Module, _given: object, state: Tensor) -> None:
        seen.states.append(state)

    sublayers: list[Sublayer] = list(model.sublayers())
    hooks = [one.register_forward_pre_hook(before) for one in sublayers]
    hooks += [one.branch.register_forward_hook(returned) for one in sublayers]
    hooks.append(sublayers[-1].register_forward_hook(after))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def measured(model: Transformer, batch: Batch, *, design: str, seed: int) -> Start:
    """One forward and one backward pass of the loss; the model is made float64."""
    model = model.double()
    depth, writes = model.recipe.depth, len(model.recipe.branches)
    matrix = last_matrix(model)
    with plain_attention(), torch.enable_grad(), seen_writes(model) as seen:
        loss = model.loss(batch.ids, batch.targets)
        sites = seen.sites(writes=writes)
        found = torch.autograd.grad(loss, [matrix, *sites])
    pairs = zip(seen.states, seen.updates, strict=False)
    with torch.no_grad():
        split = [(u.square().mean(), 2.0 * (x * u).mean()) for x, u in pairs]
        return Start(
            design=design,
            depth=depth,
            seed=seed,
            weight=float(found[0].norm()),
            gradients=tuple(float(g.norm()) for g in found[1:]),
            squares=tuple(float(x.square().mean()) for x in sites),
            updates=float(sum(float(one) for one, _ in split)),
            crosses=float(sum(float(two) for _, two in split)),
            cosine=float(Tokens(sites[-1]).cosine.all.mean()),
            loss=float(loss),
        )


def last_matrix(model: Transformer) -> Tensor:
    """The output matrix of the last MLP."""
    roles = dict(list(model.sublayers())[-1].branch.weights())
    return roles["down"]


def overflows(model: Transformer, batch: Batch) -> bool:
    """Whether the loss or its gradient at the first site is not finite in float32."""
    model = model.float()
    with torch.enable_grad(), seen_writes(model) as seen:
        loss = model.loss(batch.ids, batch.targets)
        (first,) = torch.autograd.grad(loss, [seen.states[0]])
    return not bool(torch.isfinite(loss) & torch.isfinite(first).all())
