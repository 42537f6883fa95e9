"""What LayerNorm does to tokens: statistics, epsilon, geometry, and what attention reads behind it.

The norm is that of the parts catalog in float64; `normalise_by_theory` is the same formula in numpy
as `leadline.theory` has it, so that every identity is computed by two programs.

    x̂ = (x - mu 1) / s,   s = sqrt(sigma² + eps),   LN(x) = gamma x̂ + beta
    mean x̂ = 0,   Var x̂ = sigma² / (sigma² + eps)

Mean 0 is exact; variance 1 holds for tokens that are large against sqrt(eps), here 0.003. Claims
about size are therefore read at tokens of standard deviation 1 and carried ("reach") to 0.02, that
of GPT-2's embedding, and 0.001. The note's division by sigma + eps is compared in the same way.

Statistics. "Feature-wise" is read as it is used of norms: over the tokens, as BatchNorm does; the
features drawn differ in size by a hundred, as in real streams. That LayerNorm reads one token and
nothing else is a list of differences that must be rounding (those of BatchNorm must not be),
decoding token by token with kept keys and values included.

Geometry, with eps = 0 as in the notes. |x - mu 1|² = d sigma², so the radius is sqrt(d), in the
hyperplane orthogonal to 1. With a gain z = gamma x̂ fulfils |z / gamma| = sqrt(d) and
sum z / gamma = 0: an ellipsoid orthogonal to 1 / gamma, whose centre the shift moves to beta. So a
trained norm returns no zero mean; (z - beta) / gamma has it. Radial means along the token itself:
what centring removes is mu 1, |x|² = |x - mu 1|² + d mu², and a token twice as far out is still
twice as far out after it; only the division removes that.

Behind the norm. Order one is a statement about growth, the exponent 0 over the width: a token with
itself has d, two tokens of independent features about sqrt(d), queries and keys made by weights of
variance 1/d about sqrt(d_h), hence the division by sqrt(d_h). That attention reads directions only
is read as: the length of a token makes no difference to the branch behind a norm.

Sources: Ba, Kiros, Hinton 2016, arXiv 1607.06450; Brody, Alon, Yahav 2023, arXiv 2305.02582.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, measures
from leadline.claims.claim import Picture
from leadline.experiments.outcome import exponent
from leadline.theory import norm_jacobian

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

WIDTH, EPS = 64, 1e-5


def draw_tokens(seed: int, key: int, *, count: int, width: int = WIDTH, std: float = 1.0) -> Array:
    """Draw tokens [count, width] of normal features with mean zero and exactly this std."""
    x = np.random.default_rng([seed, key]).standard_normal((count, width))
    x = x - x.mean(axis=1, keepdims=True)
    return std * x / np.sqrt((x**2).mean(axis=1, keepdims=True))


def build_layernorm(
    width: int, *, gamma: Array | None = None, beta: Array | None = None, eps: float = EPS
) -> Any:
    """Build the LayerNorm of the parts catalog in float64, with this gain and shift."""
    import torch

    from leadline.parts.norms import NORMS

    norm = NORMS.get("layernorm")(width, eps=eps).double()
    with torch.no_grad():
        if gamma is not None:
            norm.weight.copy_(torch.from_numpy(gamma))
        if beta is not None:
            norm.bias.copy_(torch.from_numpy(beta))
    return norm


def normalise(x: Array, **settings: Any) -> Array:
    """Apply a LayerNorm of these settings to tokens [..., width]."""
    import torch

    with torch.no_grad():
        norm = build_layernorm(x.shape[-1], **settings)
        return norm(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def differentiate(x: Array, **settings: Any) -> Array:
    """Take the Jacobian [d, d] of a LayerNorm at one token, row by row by autograd."""
    import torch

    norm = build_layernorm(len(x), **settings)
    jacobian = torch.autograd.functional.jacobian(norm, torch.from_numpy(np.ascontiguousarray(x)))
    assert isinstance(jacobian, torch.Tensor)
    return jacobian.detach().numpy()


def normalise_by_theory(x: Array, *, eps: float = EPS) -> Array:
    """Apply LayerNorm to tokens [count, width] by the formula of the theory."""
    return np.stack([norm_jacobian.normed(one, norm="layernorm", eps=eps)[0] for one in x])


def largest(values: Array) -> float:
    """Return the largest absolute value."""
    return float(np.abs(values).max())


@measures("layernorm-by-token")
def layernorm_by_token(seed: int) -> Measured:
    """Measure mean and variance of every token behind the norm, for tokens of three sizes."""
    rng = np.random.default_rng([seed, 40])
    count = 32
    means, errors = list[float](), list[float]()
    variances: dict[float, Array] = {}
    for std in (1.0, 0.02, 1e-3):
        x = draw_tokens(seed, 39, count=count, std=std)
        after = normalise(x + rng.standard_normal((count, 1)) * std)
        variances[std] = after.var(axis=1)
        means.append(largest(after.mean(axis=1)))
        law = std**2 / (std**2 + EPS)
        errors += [largest(one.var(axis=1) - law) for one in (after, normalise_by_theory(x))]
    return Measured(
        mean_error=max(means),
        variance_error=largest(variances[1.0] - 1.0),
        variance_embedding=variances[0.02].mean(),
        variance_small=variances[1e-3].mean(),
        variance_equal=normalise(np.full((1, WIDTH), 0.5)).var(),
        law_error=max(errors),
    )


@measures("layernorm-epsilon")
def layernorm_epsilon(seed: int) -> Measured:
    """Set both places of epsilon against the norm, over the size of the token."""
    stds = [10.0 ** float(power) for power in np.linspace(-4.0, 1.0, 26)]
    sizes: dict[str, list[float]] = {"√(σ² + ε), used": [], "σ + ε, the note": []}
    differences: dict[float, float] = {}
    errors: list[float] = []
    for std in (*stds, 1e-3, 0.02, 1.0):
        x = draw_tokens(seed, 36, count=8, std=std)
        used = normalise(x)
        centred = x - x.mean(axis=1, keepdims=True)
        note = centred / (np.sqrt((centred**2).mean(axis=1, keepdims=True)) + EPS)
        differences[std] = largest(note - used) / largest(used)
        errors.append(largest(normalise_by_theory(x) - used) / largest(used))
        for values, one in zip(sizes.values(), (used, note), strict=True):
            values.append(_root_mean_square(one))
    return Measured(
        unit=differences[1.0],
        small=differences[1e-3],
        embedding=differences[0.02],
        formula_error=max(errors),
        picture=Picture(
            "standard deviation of the token",
            "standard deviation behind the norm",
            {label: values[: len(stds)] for label, values in sizes.items()},
            over=stds,
            x_log=True,
        ),
    )


@measures("layernorm-feature-wise")
def layernorm_feature_wise(seed: int) -> Measured:
    """Measure statistics of features and of tokens behind the norm."""
    rng = np.random.default_rng([seed, 41])
    sizes = np.logspace(-1.0, 1.0, WIDTH)
    x = sizes * (rng.standard_normal((4096, WIDTH)) + rng.choice([-0.5, 0.5], WIDTH))
    after = normalise(x)
    variances = after.var(axis=0)
    return Measured(
        smallest=variances.min(),
        largest=variances.max(),
        variance_ratio=variances.max() / variances.min(),
        feature_mean=largest(after.mean(axis=0)),
        token_mean=largest(after.mean(axis=1)),
        token_variance=largest(after.var(axis=1) - 1.0),
    )


@measures("layernorm-batch-free")
def layernorm_batch_free(seed: int) -> Measured:
    """Norm the same tokens alone, together and in both modes, and decode with a cache."""
    import torch

    from leadline.parts import Transformer
    from leadline.parts.generation import Cache

    examples, length = 16, 12
    rng = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.randn(examples, length, WIDTH, generator=rng, dtype=torch.float64) + 0.5
    norm, batch_norm = build_layernorm(WIDTH), torch.nn.BatchNorm1d(WIDTH).double()
    model = Transformer(
        depth=4, width=WIDTH, heads=4, vocabulary=50, context=length, init="xavier", seed=seed
    )
    model = model.double().eval()
    ids = torch.randint(0, 50, (2, length), generator=rng)
    with torch.no_grad():
        together = norm(x)
        alone = torch.stack([torch.stack([norm(token) for token in one]) for one in x])
        modes = norm.train()(x) - norm.eval()(x)
        flat = x.flatten(0, 1)
        modes_of_batch_norm = batch_norm.train()(flat) - batch_norm.eval()(flat)
        whole = model(ids)
        cache = Cache(length)
        steps = torch.cat([model(ids[:, i : i + 1], cache=cache) for i in range(length)], 1)
    return Measured(
        examples=examples,
        alone=(together - alone).abs().max(),
        modes=modes.abs().max(),
        kept=len(list(norm.buffers())),
        steps=(whole - steps).abs().max() / whole.abs().max(),
        batch_norm=modes_of_batch_norm.abs().max(),
    )


@measures("layernorm-sphere")
def layernorm_sphere(seed: int) -> Measured:
    """Measure lengths behind the norm, without and with gain and shift, for three widths."""
    rng = np.random.default_rng([seed, 37])
    count = 32
    lengths: dict[int, Array] = {}
    errors, planes, shells = list[float](), list[float](), list[float]()
    for width in (3, 64, 768):
        x = rng.standard_normal((count, width)) * rng.uniform(0.5, 5.0, (count, 1)) + 0.5
        gamma, beta = rng.uniform(0.5, 1.5, width), rng.standard_normal(width)
        after = normalise(x, eps=0.0)
        lengths[width] = np.linalg.norm(after, axis=1)
        root = math.sqrt(width)
        for one in (after, normalise_by_theory(x, eps=0.0)):
            errors.append(largest(np.linalg.norm(one, axis=1) / root - 1.0))
            planes.append(largest(one.mean(axis=1)))
        undone = (normalise(x, gamma=gamma, beta=beta, eps=0.0) - beta) / gamma
        shells.append(largest(np.linalg.norm(undone, axis=1) / root - 1.0))
    return Measured(
        radius=lengths[64].mean(),
        radius_large=lengths[768].mean(),
        spread=np.ptp(lengths[64]) / lengths[64].mean(),
        radius_error=max(errors),
        plane_error=max(planes),
        ellipsoid_error=max(shells),
        picture=draw_sphere(),
    )


GAIN_OF_PICTURE = np.array([1.6, 0.7, 1.0])
PLANE_OF_PICTURE = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]])
"""Two directions that span the plane orthogonal to (1, 1, 1)."""


def draw_sphere() -> Picture:
    """Draw tokens of three features before the norm, behind it, and with a gain.

    They are the same for every seed. With a gain they leave the plane and are drawn as seen along
    (1, 1, 1).
    """
    rng, count = np.random.default_rng(37), 60
    axes = PLANE_OF_PICTURE / np.linalg.norm(PLANE_OF_PICTURE, axis=1, keepdims=True)
    x = rng.standard_normal((count, 3)) * rng.uniform(0.3, 2.0, (count, 1))
    turn = np.linspace(0.0, 2.0 * math.pi, 100)
    several = {
        "unit circle the note names": np.stack([np.cos(turn), np.sin(turn)], axis=1),
        "drawn tokens": x @ axes.T,
        "LayerNorm without gain": normalise(x, eps=0.0) @ axes.T,
        "with gain": normalise(x, gamma=GAIN_OF_PICTURE, eps=0.0) @ axes.T,
    }
    return Picture(
        "along (1, −1, 0)",
        "along (1, 1, −2)",
        {name: points.T for name, points in several.items()},
        points=True,
        equal=True,
        faint=("unit circle the note names",),
    )


@measures("layernorm-zero-mean-space")
def layernorm_zero_mean_space(seed: int) -> Measured:
    """Measure means behind the norm as it starts, and with a gain and a shift."""
    rng = np.random.default_rng([seed, 44])
    x = draw_tokens(seed, 42, count=64, std=2.0)
    gamma, beta = rng.uniform(0.5, 1.5, WIDTH), 0.5 * rng.standard_normal(WIDTH)
    moved = x + rng.standard_normal((64, 1))  # tokens that have a mean to lose
    trained = normalise(moved, gamma=gamma, beta=beta)
    return Measured(
        mean_bare=largest(normalise(moved).mean(axis=1)),
        mean_trained=_root_mean_square(trained.mean(axis=1)),
        mean_undone=largest(((trained - beta) / gamma).mean(axis=1)),
        twice=np.linalg.norm(normalise(x) - x) / np.linalg.norm(x),
    )


@measures("mean-removal-is-radial")
def mean_removal_is_radial(seed: int) -> Measured:
    """Set what centring removes beside the token, and centre tokens that were moved outward."""
    rng = np.random.default_rng([seed, 43])
    x = rng.standard_normal((64, WIDTH)) + 0.3 * rng.standard_normal((64, 1))
    removed = np.repeat(x.mean(axis=1, keepdims=True), WIDTH, axis=1)
    left = x - removed
    squares = (x**2).sum(axis=1)
    parts = (left**2).sum(axis=1) + WIDTH * x.mean(axis=1) ** 2
    lengths = np.linalg.norm(2.0 * x - 2.0 * removed, axis=1) / np.linalg.norm(left, axis=1)
    return Measured(
        cosine=_root_mean_square(_cosines(removed, x)),
        still=lengths.mean(),
        along_one=np.abs(_cosines(removed, np.ones_like(x))).min(),
        pythagoras=largest(squares - parts) / float(squares.max()),
        after_division=largest(normalise(2.0 * x, eps=0.0) - normalise(x, eps=0.0)),
    )


@measures("dot-products-after-layernorm")
def dot_products_after_layernorm(seed: int) -> Measured:
    """Fit how dot products behind LayerNorm grow with the width."""
    rng = np.random.default_rng([seed, 38])
    widths, count, heads = (64, 128, 256, 512, 1024), 48, 4
    labels = {"own": "⟨z, z⟩", "other": "⟨z, z′⟩", "query_key": "⟨q, k⟩", "score": "⟨q, k⟩/√d_h"}
    sizes: dict[str, list[float]] = {name: [] for name in labels}
    apart = ~np.eye(count, dtype=bool)
    for width in widths:
        head = width // heads
        z = normalise(3.0 * rng.standard_normal((count, width)))
        query, key = rng.standard_normal((2, width, head)) / math.sqrt(width)
        products = ((z @ query) @ (z @ key).T)[apart]
        sizes["own"].append(float((z * z).sum(axis=1).mean()))
        sizes["other"].append(_root_mean_square((z @ z.T)[apart]))
        sizes["query_key"].append(_root_mean_square(products))
        sizes["score"].append(_root_mean_square(products / math.sqrt(head)))
    slopes = {
        name: exponent.fit_exponent(widths, {0: values}).slope for name, values in sizes.items()
    }
    return Measured(
        slopes,
        score_size=sizes["score"][-1],
        picture=Picture(
            "width",
            "typical size",
            {labels[name]: values for name, values in sizes.items()},
            over=widths,
            x_log=True,
            y_log=True,
        ),
    )


@measures("attention-sees-directions")
def attention_sees_directions(seed: int) -> Measured:
    """Measure what one attention branch behind its norm makes of tokens of changed length."""
    import torch

    from leadline.parts import Transformer

    length = 24
    rng = torch.Generator().manual_seed(seed)

    def build(norm: str) -> Any:
        model = Transformer(
            depth=1, width=WIDTH, heads=4, norm=norm, init="xavier", context=length, seed=seed
        )
        return next(iter(model.double().eval().sublayers()))

    normed, exact, bare = (build(norm) for norm in ("layernorm", "layernorm(eps=0.0)", "none"))
    x = torch.randn(1, length, WIDTH, generator=rng, dtype=torch.float64)
    # Between 1/2 and 100, another factor for every token.
    factors = torch.exp(
        torch.empty(1, length, 1, dtype=torch.float64).uniform_(-0.69, 4.6, generator=rng)
    )
    moved = x + torch.randn(1, length, 1, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        return Measured(
            scaled=_change(normed, x, factors * x),
            bare=_change(bare, x, factors * x),
            small=_change(normed, 1e-3 * x, 2e-3 * x),
            shifted=_change(normed, x, moved),
            exact=_change(exact, 1e-3 * x, 2e-3 * x),
        )


def _change(sublayer: Any, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return by how much the update for y differs from that for x, relative to the latter."""
    from leadline.parts.branches import Run

    before, after = (
        sublayer.branch(one if sublayer.enter is None else sublayer.enter(one), Run(causal=True))
        for one in (x, y)
    )
    return float((after - before).norm() / before.norm())


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt((values**2).mean()))


def _cosines(one: Array, other: Array) -> Array:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(axis=1) / lengths
