"""Check that the linear maps of a stack's blocks are the maps that they are taken for.

    joined          chain of the blocks' J' on one random vector, against the whole model's J':
                    apart where more than the stream goes from block to block
    refuse_other    one block alone, against the same block inside the model's pass
    difference      products J' u, against finite differences of the block
    plainly         autocast is off, so that numbers are of the type that they are said to be

Finite differences. Along one random direction v, as long as the stream at every token, with the
step h = `STEP`:

    d+ = (f(x + h v) - f(x)) / h,    d- = (f(x) - f(x - h v)) / h,    d = (d+ + d-) / 2,    r = d - J v

|r| is estimated without J v, which may not be available: <u, r> = <u, d> - <J' u, v> has the mean
square |r|^2 over Gaussian u, and `ACROSS` of them are taken. It is given as a share of the smaller of
|d| and |d - v|: what the block makes of v, and what it adds to it. So a small branch that is cut off
shows beside a large skip connection.

Where f has kinks within reach (ReLU) J v is d+ or d- in the places concerned, so |r| = |d+ - d-| / 2
without any fault; a jump (a router that turns over) and rounding also make the two differ. So a
block is reported only where |r| is more than |d+ - d-|, twice that, by `CUT`, and where |d+ - d-|
is no more than `OPEN`: beyond it nothing is known. The step keeps it small: sqrt(eps) of float32,
where rounding is eps / h = h of the stream, which |d+ - d-| is taken to be at least: a branch that
moves by less than 2 h of the stream is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from leadline.anatomy.stretch.stretch import Function, Stretches
from leadline.errors import ProbeError
from leadline.numerics.linear.linear_maps import LinearMap, apart
from leadline.numerics.linear.linearised import Linearised

__all__ = [
    "ACROSS",
    "CUT",
    "JOINED",
    "NOT_COMPARED",
    "OPEN",
    "STEP",
    "cut_off",
    "difference",
    "joined",
    "not_the_product",
    "plainly",
    "refuse_other",
]

Tensor = torch.Tensor

JOINED = 1e-3
"""Largest relative difference of two products J' u that is taken for rounding."""
STEP = math.sqrt(torch.finfo(torch.float32).eps)
"""Step of finite differences, as a share of the stream."""
ACROSS = 4
"""Number of random vectors u with which the miss of finite differences is measured."""
OPEN = 0.5
"""Largest difference of the two sides, as a share, at which finite differences are trusted."""
CUT = 0.05
"""Largest miss of finite differences beyond what their two sides leave open, as a share."""
NOT_COMPARED = (
    "The product of the blocks is out of the range of the number type, so it was not compared with "
    "the whole model."
)
_DEVICES = ("cpu", "cuda", "mps", "xpu")


def joined(
    stretches: Stretches,
    start: int = 0,
    end: int | None = None,
    *,
    whole: LinearMap | None = None,
    seed: int = 0,
) -> float | None:
    """How far the product of the blocks' Jacobians is from that of the model between two sites.

    |J_1' ... J_L' u - J' u| / |J' u| of one random u, in the worst example. None where J' u leaves
    the range of the number type. `whole` is J, where it is at hand.
    """
    end = stretches.depth if end is None else end
    entry = stretches.typed(stretches.stream(end))
    first = _unit(_random(1, entry.shape, seed + 1).to(entry.device, entry.dtype))[0]
    u, level = first, 0.0
    for layer in range(end, start, -1):
        with stretches.running():
            block = Linearised(*stretches.function(layer - 1, layer))
        u, size = _unit(block.adjoint(u))
        level = level + torch.where(size > 0, size, 1.0).log()
    scale = torch.as_tensor(level).exp()
    limits = torch.finfo(first.dtype)
    if not bool(((scale > limits.tiny / limits.eps) & (scale < limits.max * limits.eps)).all()):
        return None
    if whole is None:
        with stretches.running():
            whole = Linearised(*stretches.function(start, end))
    return apart(u.double() * scale, whole.adjoint(first))


def not_the_product(what: str, size: float) -> str:
    """The sentence, without its end, for a difference beyond `JOINED`."""
    return (
        f"{what} is not the product of those of its blocks (J' u differs by {size:.2g}): more than "
        "the stream goes from block to block, such as a history, or a step between them"
    )


def refuse_other(stretches: Stretches, layer: int, alone: LinearMap, *, seed: int = 0) -> int:
    """ProbeError where a block alone is another function than the block in the model.

    Returns the products that it took: none where nothing that the block is handed can remember.
    """
    inside = stretches.in_the_model(layer)
    if inside is None:
        return 0
    u = _random(1, alone.shape, seed + 1).to(alone.device, alone.dtype)
    miss = apart(alone.adjoint(u), Linearised(*inside).adjoint(u))
    if not miss <= JOINED:
        raise ProbeError(
            f"Layer {layer}, run again alone, has another Jacobian than in the model (J' u "
            f"differs by {miss:.2g}): something that it is handed, such as a cache, remembers "
            "the first run. Run the model without a cache."
        )
    return 2


def difference(
    f: Function, x: Tensor, linear_map: LinearMap, *, seed: int = 0
) -> tuple[float, float] | None:
    """|r| and |d+ - d-| as shares, in the example where they are furthest apart.

    None where no example can be judged.
    """
    draws = _random(1 + ACROSS, x.shape, seed + 2).to(x.device)
    length = torch.linalg.vector_norm(x.double(), dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
    u, v = draws[1:].to(x.dtype), (draws[0] * length).to(x.dtype)
    ahead, behind = x + STEP * v, x - STEP * v
    with torch.no_grad():
        before, here, after = (f(at).double() for at in (behind, x, ahead))
    # The direction as it was gone: x + h v is rounded.
    direction = (ahead.double() - behind.double()) / (2 * STEP)
    d = (after - before) / (2 * STEP)
    size = torch.minimum(_length(d), _length(d - direction))
    # Where both sides are rounded alike they agree by chance, so that rounding counts in any case.
    rounding = torch.finfo(x.dtype).eps * _length(here)
    spread = torch.maximum(_length(after - 2 * here + before), rounding) / STEP / size
    miss = (u * d).sum((2, 3)) - (linear_map.adjoint(u).double() * direction).sum((2, 3))
    share = miss.square().mean(0).sqrt() / size
    judged = ((size > 0) & (spread <= OPEN)).nonzero()[:, 0]
    if not len(judged):
        return None
    worst = judged[(share - spread)[judged].argmax()]
    return float(share[worst]), float(spread[worst])


def cut_off(
    f: Function, x: Tensor, linear_map: LinearMap, where: str, *, seed: int = 0
) -> str | None:
    """The sentence for a J' that is further from finite differences than `CUT`, or None."""
    shares = difference(f, x, linear_map, seed=seed)
    if shares is None or shares[0] - shares[1] <= CUT:
        return None
    return (
        f"{where}: autograd's Jacobian differs from finite differences by {shares[0]:.0%}; a part is "
        "cut off from the gradient (detach, no_grad) or is not smooth. The numbers are those that "
        "gradients see."
    )


@contextmanager
def plainly() -> Iterator[tuple[str, ...]]:
    """Switch autocast off inside the `with` block and yield a remark where it was on."""
    on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    with ExitStack() as off:
        for device in on:
            off.enter_context(torch.autocast(device, enabled=False))
        yield (
            (
                "Autocast was on; for Jacobians it is switched off, and the model runs in its own type.",
            )
            if on
            else ()
        )


def _random(count: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Gaussian vectors, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64)


def _length(stream: Tensor) -> Tensor:
    """[example] norms."""
    return torch.linalg.vector_norm(stream, dim=(1, 2))


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors of [1, example, token, width], and their sizes before; 0 stays 0."""
    size = torch.linalg.vector_norm(vectors.double(), dim=(2, 3), keepdim=True)
    return (vectors / torch.where(size > 0, size, 1.0)).to(vectors.dtype), size
