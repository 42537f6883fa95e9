"""Jacobians of layers and blocks of small random networks: I + F', with norms and without.

For numbers dL/dx_l = dL/dx_L prod (1 + F_i') is the chain rule, with the shortcut and without (the
claim of residual-chain-rule, as is the factor I + F' of one layer of vectors). For a chain of
matrices the order counts (its reach): with the gradient as a row,

    dL/dx_l = dL/dx_L J_{L-1} J_{L-2} ... J_l,        J_i = I + F_i'

the factor of the LAST layer stands first, not that of i = l as written. Linear layers have the
factors W_i, ReLU layers D_i W_i with D_i = diag(relu'(W_i x_i)), about half of the gates shut (the
reach of gradient-is-product-of-weights). The loss enters as dL/dx = dL/dy (1 + F'(x)), y = x +
F(x), measured on L = c y with F = sin, c and x drawn; the noted 1 + dL/dF F' has put 1 for dL/dy in
one term alone.

A write x + F(LN(x)) has the Jacobian I + F'(LN(x)) LN'(x), a write LN(x + F(x)) has J_LN (I + F'):
for every write of a network whose gains differ by feature, LN' in the closed form of
`theory.norm_jacobian`, the left side by autograd through the whole write. Where F = 0 only the path
is left: I under pre-norm, J_LN under post-norm. From the second norm on the stream is on the sphere
of the norm, s = 1 up to eps, where J_LN = I - 11'/d - xx'/d is a projection: it takes the mean and
the length of every token once and leaves d - 2 directions alone at any depth, with gains of 1 and
no shift, as a norm starts. (What branches do to s is another matter.)

The identity path is said to survive any branch and norm ("even if"), so one branch decides: where
F' N' has the eigenvalue -1, I + F' N' is singular. N' maps a direction v that is orthogonal to 1
and to x to v/s, so W = -s v v' is such a branch. That J is near I is carried (the reach) to the
first block with Xavier's init. Right is sigma_min(J) >= 1 - sigma_1(J - I), measured where GPT-2's
scaled init keeps sigma_1(J - I) below 1.

F' about 0 (small-init-small-derivative) stands beside the 1 that it is added to: at most a tenth of
it, in norm. The claim has no norms and GPT-2's init, the smallest in common use (standard deviation
0.02, outputs divided by sqrt(2L) more), at a width of 64; wider matrices of the same entries have
larger norms. The reach are branches behind a norm, which divides by the standard deviation of the
stream: what small weights save is lost again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.architecture import farthest_from_one
from leadline.claims.measure.products import (
    Matrix,
    partial_products,
    product,
    singular_values,
    spectral_norm,
)

if TYPE_CHECKING:
    from torch import Tensor

    from leadline.anatomy.stretch.stretch import Stretches
    from leadline.experiments.gradient_flow.starts import Writes
    from leadline.models.inputs import Inputs
    from leadline.parts import Transformer
    from leadline.parts.sublayer import Sublayer


@dataclass(frozen=True)
class Network:
    """A small random network in float64, with one example of random tokens."""

    model: Transformer
    batch: Inputs

    def empty(self) -> Network:
        """Make every branch zero: all weights of the branches become 0."""
        import torch

        with torch.no_grad():
            for sublayer in self.model.sublayers():
                for parameter in sublayer.branch.parameters():
                    parameter.zero_()
        return self

    def writes(self) -> Writes:
        """Return the stream before every write and after the last, and every update."""
        import torch

        from leadline.experiments.gradient_flow.starts import plain_attention, seen_writes

        with torch.no_grad(), plain_attention(), seen_writes(self.model) as writes:
            self.model.stream(self.batch.main)
        return writes

    def stretches(self) -> Stretches:
        """Return the blocks as functions of the stream."""
        from leadline.anatomy.stretch.stretch import Stretches
        from leadline.instruments.passes.measurement import anatomy_of
        from leadline.instruments.passes.running import call

        (stack,) = anatomy_of(self.model, self.batch).stacks
        return Stretches(self.model, stack, lambda: call(self.model, self.batch))


def build_network(
    depth: int, width: int, *, heads: int = 2, length: int, seed: int, **fields: Any
) -> Network:
    """Build a random network of these parts; Xavier's init unless another is named."""
    from leadline.models.inputs import random_tokens
    from leadline.parts import Recipe, Transformer

    sizes = {"vocabulary": 64, "context": 32, "depth": depth, "width": width, "heads": heads}
    recipe = Recipe.from_json({**sizes, "init": "xavier", **fields})
    model = Transformer(recipe, seed=seed).double().eval()
    return Network(model, random_tokens(model, examples=1, length=length, seed=seed))


def jacobian_of(f: Callable[[Tensor], Tensor], x: Tensor) -> Matrix:
    """Return the Jacobian [N, N] of a function of one example's stream, by autograd."""
    from leadline.numerics.linear.linear_maps import dense
    from leadline.numerics.linear.linearised import Linearised

    return dense(Linearised(f, x))[0].double().numpy()


def _writes_one_by_one(
    network: Network,
) -> Iterator[tuple[Sublayer, Tensor, Callable[[Tensor], Tensor], Matrix]]:
    """Yield every write: its sublayer, its stream, its branch, and its Jacobian by autograd."""
    stretches, writes = network.stretches(), network.writes()
    several = zip(network.model.sublayers(), writes.states, writes.runs, strict=False)
    for number, (sublayer, x, run) in enumerate(several):

        def branch(v: Tensor, inner: Any = sublayer.branch, run: Any = run) -> Tensor:
            return inner(v, run)

        write, at = stretches.sublayer(1 + number // 2, 1 + number % 2)
        yield sublayer, x, branch, jacobian_of(write, at)


@measures("gradient-is-product-of-weights")
def gradient_is_product_of_weights(seed: int) -> Measured:
    """Set autograd through linear and ReLU layers beside the products of weights and of gates."""
    import torch

    layers, width = 20, 16
    rng = np.random.default_rng([seed, 114])
    weights = [rng.normal(size=(width, width)) * np.sqrt(2.0 / width) for _ in range(layers)]
    start = rng.normal(size=width)

    def jacobian(relu: bool) -> Matrix:
        def network(x: Tensor) -> Tensor:
            for weight in weights:
                x = x @ torch.from_numpy(weight).T
                x = torch.relu(x) if relu else x
            return x

        return jacobian_of(network, torch.from_numpy(start)[None, None])

    def miss(formula: Matrix, real: Matrix) -> float:
        return float(np.linalg.norm(formula - real) / np.linalg.norm(real))

    x, gated = start, list[Matrix]()
    for weight in weights:
        gates = (weight @ x > 0.0).astype(np.float64)
        gated.append(gates[:, None] * weight)
        x = gates * (weight @ x)
    plain, real = product(weights), jacobian(relu=True)
    lines = {
        "product of the weights": [spectral_norm(one) for one in partial_products(weights)],
        "Jacobian with ReLU": [spectral_norm(one) for one in partial_products(gated)],
    }
    return Measured(
        linear=miss(plain, jacobian(relu=False)),
        relu=miss(plain, real),
        gated=miss(product(gated), real),
        smaller=spectral_norm(plain) / spectral_norm(real),
        picture=Picture("layers", "norm", lines, over=0, y_log=True),
    )


@measures("residual-chain-rule")
def residual_chain_rule(seed: int) -> Measured:
    """Set autograd through a chain of numbers and through a Transformer beside the products."""
    import torch

    rng = np.random.default_rng([seed, 102])
    amplitude, offset = 0.5 * rng.normal(size=(2, 40))

    def miss_of_numbers(skip: bool) -> float:
        x = start = torch.tensor(float(rng.normal()), dtype=torch.float64, requires_grad=True)
        factors = 1.0
        for a, b in zip(amplitude, offset, strict=True):
            at = x.item()
            factors *= skip + float(a) * float(np.cos(at + b))
            x = skip * x + float(a) * torch.sin(x + float(b))
        (gradient,) = torch.autograd.grad(torch.exp(x), start)
        return abs(gradient.item() / (factors * torch.exp(x).item()) - 1.0)

    depth = 3
    network = build_network(depth, 8, length=4, seed=seed)
    whole: list[Matrix] = []
    misses: list[float] = []
    for sublayer, x, branch, real in _writes_one_by_one(network):
        assert sublayer.enter is not None
        added = jacobian_of(lambda v, enter=sublayer.enter, f=branch: f(enter(v)), x)
        whole.append(np.eye(len(added)) + added)
        misses.append(float(np.linalg.norm(real - whole[-1])))
    through, x = network.stretches().function(0, depth)
    leaf = x.clone().requires_grad_()
    weights = torch.from_numpy(rng.normal(size=tuple(x.shape)))
    (real,) = torch.autograd.grad((weights * through(leaf)).sum(), leaf)
    gradient = real.flatten().numpy()
    ordered = written = weights.flatten().numpy()
    for factor in reversed(whole):
        ordered = ordered @ factor
    for factor in whole:
        written = written @ factor
    size = float(np.linalg.norm(gradient))
    return Measured(
        scalar=miss_of_numbers(skip=True),
        plain=miss_of_numbers(skip=False),
        factor=max(misses),
        ordered=float(np.linalg.norm(ordered - gradient)) / size,
        written=float(np.linalg.norm(written - gradient)) / size,
    )


@measures("loss-gradient-formula")
def loss_gradient_formula(seed: int) -> Measured:
    """Set the noted and the right formula beside autograd, for numbers and for blocks."""
    import torch

    rng = np.random.default_rng([seed, 108])
    of_numbers: list[tuple[float, float, float]] = []
    for _ in range(50):
        c, at = float(rng.uniform(2.0, 4.0)), float(rng.uniform(-1.0, 1.0))
        x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        y = x + torch.sin(x)
        by_x, by_y = (one.item() for one in torch.autograd.grad(c * y, (x, y)))
        slope = math.cos(at)
        noted, right = 1.0 + by_y * slope, by_y * (1.0 + slope)
        misses = [abs(formula - by_x) / abs(by_x) for formula in (noted, by_y, right)]
        of_numbers.append((misses[0], misses[1], misses[2]))
    depth, width, length = 3, 8, 4
    stretches = build_network(depth, width, length=length, seed=seed).stretches()
    gradient = last = rng.normal(size=length * width)
    of_blocks: list[float] = []
    for layer in range(depth, 0, -1):
        gradient = jacobian_of(*stretches.function(layer - 1, layer)).T @ gradient
        through, x = stretches.function(layer - 1, depth)
        leaf = x.clone().requires_grad_()
        loss = (torch.from_numpy(last) * through(leaf).flatten()).sum()
        real = torch.autograd.grad(loss, leaf)[0].flatten().numpy()
        of_blocks.append(float(np.linalg.norm(gradient - real) / np.linalg.norm(real)))
    noted, equal, right = zip(*of_numbers, strict=True)
    means = {"noted": float(np.mean(noted)), "equal": float(np.mean(equal))}
    return Measured(means, right=max(right), blocks=max(of_blocks))


def _formula_of_writes(placement: str, seed: int) -> Measured:
    """Set autograd through every write beside the formula of its placement, whole and short."""
    import torch
    from torch import nn

    from leadline.theory.norm_jacobian import norm_jacobian_of_stream

    network = build_network(2, 8, length=4, seed=seed, placement=placement)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.model.modules():
            if isinstance(module, nn.LayerNorm):
                drawn = torch.rand(module.weight.shape, generator=generator, dtype=torch.float64)
                module.weight.copy_(0.5 + drawn)
    errors: list[float] = []
    bare: list[float] = []
    for sublayer, x, branch, real in _writes_one_by_one(network):
        enter, settle = sublayer.enter, sublayer.settle
        with torch.no_grad():
            read = x if enter is None else enter(x)
            normed = x if settle is None else x + branch(read)
        norm = enter if settle is None else settle
        assert isinstance(norm, nn.LayerNorm)
        of_branch = jacobian_of(branch, read)
        of_norm = norm_jacobian_of_stream(
            normed[0].numpy(), norm="layernorm", gamma=norm.weight.detach().numpy(), eps=norm.eps
        )
        eye, size = np.eye(len(real)), float(np.linalg.norm(real))
        if settle is None:
            short = of_branch @ of_norm
            formula = eye + short
        else:
            short = eye + of_branch
            formula = of_norm @ short
        errors.append(float(np.linalg.norm(formula - real)) / size)
        bare.append(float(np.linalg.norm(short - real)) / size)
    return Measured(error=max(errors), bare=min(bare))


@measures("pre-norm-jacobian")
def pre_norm_jacobian(seed: int) -> Measured:
    """Set autograd beside I + F' LN', write by write; without the I for comparison."""
    return _formula_of_writes("pre", seed)


@measures("post-norm-jacobian")
def post_norm_jacobian(seed: int) -> Measured:
    """Set autograd beside J_LN (I + F'), write by write; without J_LN for comparison."""
    return _formula_of_writes("post", seed)


@measures("post-norm-wraps-the-identity")
def post_norm_wraps_the_identity(seed: int) -> Measured:
    """Take the Jacobian of stacks whose branches are zero."""
    depth, length = 12, 4
    away: dict[str, float] = {}
    behind = np.array([])
    for placement in ("pre", "post"):
        network = build_network(depth, 16, length=length, seed=seed, placement=placement)
        stretches = network.empty().stretches()
        whole = jacobian_of(*stretches.function(0, depth))
        away[placement] = spectral_norm(whole - np.eye(len(whole)))
        behind = singular_values(jacobian_of(*stretches.function(1, depth)))
    kept = behind > 1e-3
    return Measured(
        away, through=behind[0], lost=float(np.sum(~kept)) / length, middle=behind[kept][-1]
    )


@measures("identity-path-survives")
def identity_path_survives(seed: int) -> Measured:
    """Build a pre-norm write that cancels the identity, and look at untrained blocks."""
    import torch
    from torch.nn.functional import layer_norm

    from leadline.instruments.jacobian.measure import compute_jacobian
    from leadline.theory.norm_jacobian import layer_norm_jacobian, normed
    from leadline.theory.residual_products import product_band

    width, depth = 32, 12
    x, v = np.random.default_rng([seed, 107]).normal(size=(2, width))
    hat, s = normed(x, norm="layernorm", eps=0.0)
    v -= v.mean()
    v -= hat * (v @ hat) / (hat @ hat)
    v /= np.linalg.norm(v)
    weight = -s * np.outer(v, v)
    closed = np.eye(width) + weight @ layer_norm_jacobian(x, eps=0.0)
    matrix = torch.from_numpy(weight)
    real = torch.autograd.functional.jacobian(
        lambda t: t + matrix @ layer_norm(t, (width,), eps=0.0), torch.from_numpy(x)
    )
    assert isinstance(real, torch.Tensor)
    first: dict[str, float] = {}
    ratios: list[float] = []
    twice: list[float] = []
    for init in ("xavier", "gpt2"):
        network = build_network(depth, width, heads=4, length=8, seed=seed, init=init)
        stretches = network.stretches()
        for layer in (1, depth):
            block = compute_jacobian(
                network.model, network.batch,
                layer=layer, k=1, smallest=1, probes=4, tolerance=1e-4,
            )  # fmt: skip
            size, least = float(block.branch[0]), float(block.smallest[0, 0])
            whole = jacobian_of(*stretches.function(layer - 1, layer))
            twice.append(least / float(singular_values(whole)[-1]))
            first.setdefault(init, size)
            if size < 1.0:
                ratios.append(least / math.exp(product_band([size]).log_lower))
    return Measured(
        survives=singular_values(real.numpy())[-1],
        agrees=spectral_norm(real.numpy() - closed),
        first=first["xavier"],
        scaled=first["gpt2"],
        kept=min(ratios, default=math.nan),
        dense=farthest_from_one(twice),
    )


@measures("small-init-small-derivative")
def small_init_small_derivative(seed: int) -> Measured:
    """Take sigma_1(J - I) of writes of untrained networks, in the first and the last layer."""
    import torch
    from torch import nn

    from leadline.instruments.jacobian.measure import compute_jacobian

    width, depth = 64, 12

    def network_of(**fields: str) -> Network:
        return build_network(depth, width, heads=4, length=8, seed=seed, **fields)

    def looks(*places: tuple[int, int | None], probes: int = 8, **fields: str) -> list[Any]:
        """Return what the instrument says of the writes or blocks at some places."""
        network = network_of(**fields)
        return [
            compute_jacobian(
                network.model, network.batch,
                layer=layer, sublayer=sublayer, k=1, probes=probes, tolerance=1e-2,
            )
            for layer, sublayer in places
        ]  # fmt: skip

    def mean_norm(several: list[Any]) -> float:
        return float(np.mean([float(one.branch[0]) for one in several]))

    places = ((1, 1), (1, 2), (depth, 1), (depth, 2))
    # A pre-norm MLP of torch's own layers at a standard normal token.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        branch = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        ).double()
        x = torch.randn(width, dtype=torch.float64)
    of_torch = torch.autograd.functional.jacobian(branch, x)
    assert isinstance(of_torch, torch.Tensor)
    # The root mean square of F' of the first MLP: estimated, and from the matrix itself.
    (estimated,) = looks((1, 2), probes=64, init="gpt2")
    whole = jacobian_of(*network_of(init="gpt2").stretches().sublayer(1, 2))
    away = float(np.linalg.norm(whole - np.eye(len(whole)))) / math.sqrt(len(whole))
    small = looks(*places, init="gpt2")
    means = {
        "gpt2": mean_norm(small),
        "xavier": mean_norm(looks(*places, init="xavier")),
        "torch": spectral_norm(of_torch.numpy()),
    }
    zero = looks((1, None), (depth, None), connection="rezero")
    return Measured(
        means,
        bare=mean_norm(looks(*places, init="gpt2", placement="none")),
        dense=float(estimated.distance[0]) / away,
        rezero=max(float(one.branch[0]) for one in zero),
        order_one=min(means.values()),
        spread=math.sqrt(float(np.mean(np.square([float(one.distance[0]) for one in small])))),
    )
