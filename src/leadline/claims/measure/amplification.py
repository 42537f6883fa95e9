"""What attention matrices do to lengths: norms, products, noise, gradients.

A row of A = softmax(logits) sums to one, so A 1 = 1; c_j are the column sums, whose mean is 1. Matrices
are drawn in numpy from nearly uniform to nearly hard, without a mask and causal; their norms are those
that Leadline measures, in float64.

    ellipse     A = U S V' maps the circle to semi-axes sigma_1 and sigma_2; farthest is A v_1. For two
                tokens A = [[w(a), w(-a)], [w(-b), w(b)]], w(a) = 1/(1 + e^-a): the circle is walked,
                beside singular values and the closed form of a 2 x 2
    Jensen      |A x|^2 <= sum_j c_j x_j^2, since weights sum to one; the largest ratio over all x is the
                largest eigenvalue of diag(c)^-1/2 A'A diag(c)^-1/2
    norm 1      c = 1 gives |A| <= sqrt(c_max) = 1; else |A| >= |A' 1| / sqrt(n) = sqrt(1 + var(c)) > 1
    smallest    min |A x| / |x| is the smallest singular value; 1 bounds the LARGEST one from below
    any vector  the mean square amplification over all directions is |A|_F^2 / n, and
                |A|_F^2 = sum A_ij^2 <= sum A_ij = n: at most 1, for independent noise too. Only an error
                on tokens that get more than one query's attention can grow, by Jensen's step
    products    of row-stochastic matrices are row-stochastic: norms from 1 to sqrt(n) at any depth, both
                ways. What explodes is W_V W_O with a gain above 1: X -> A X W_V is a Kronecker product.
                Averaging patterns tend to rank one, so a gradient of sum zero vanishes on its way back

The Lipschitz constant: the note treats a layer as the fixed matrix A. A depends on X, so the Jacobian
of X -> A(X) X W_V has a second term and can exceed |A|_2 |W_V|_2. The true statement is the chain rule,
with the layers' own Jacobians. Dot-product attention has no Lipschitz constant on unbounded inputs (Kim,
Papamakarios and Mnih 2021, arXiv 2006.04710): a token at zero attends to all others alike, and its
Jacobian holds their covariance.

Gradients of post-norm: the note concludes from the norms of attention, for any weights, so it is read
before training, as the gradient at any layer over that at the last one. It names two designs, post-norm
and stacks that lack norms; both are claims, and the second is right with Xavier's draw. Post-norm
divides by what skips and branches add; a small factor is read as the root of a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from leadline.claims.catalog import Measured, Results, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.architecture import (
    attention_by_layer,
    branch_of,
    farthest_from_one,
    transformer,
)
from leadline.claims.measure.attention_in_models import TRAINED, bound_at

Floats = npt.NDArray[np.float64]

SPREADS = (0.1, 8.0)
"""The standard deviation of drawn logits, even in the logarithm: nearly uniform to nearly hard."""
DRAWN_MATRICES = 300


def softmax(logits: Floats) -> Floats:
    """Softmax over the last axis; minus infinity gives an exact zero."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def draw_pattern(rng: np.random.Generator, n: int, *, spread: float, causal: bool = True) -> Floats:
    """An attention matrix of n tokens with normal logits."""
    logits = spread * rng.standard_normal((n, n))
    if causal:
        logits[np.triu_indices(n, 1)] = -np.inf
    return softmax(logits)


def attention_matrices(rng: np.random.Generator, count: int) -> Iterator[Floats]:
    """Draw attention matrices of 2 to 24 tokens; every other one is causal."""
    for number in range(count):
        n = int(rng.integers(2, 25))
        spread = SPREADS[0] * (SPREADS[1] / SPREADS[0]) ** rng.random()
        yield draw_pattern(rng, n, spread=spread, causal=bool(number % 2))


def largest(matrix: Floats) -> float:
    """The largest singular value, by numpy."""
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def measured_norm(matrix: np.ndarray) -> float:
    """The spectral norm, as Leadline measures it."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    return float(spectral_norm(torch.from_numpy(matrix)).value)


def _measured_values(matrix: Floats) -> Floats:
    import torch

    from leadline.numerics.spectra.spectrum import singular_values

    return singular_values(torch.from_numpy(matrix)).numpy()


def _balanced(rng: np.random.Generator, n: int) -> Floats:
    """A doubly stochastic matrix: rows and columns of a positive one are scaled in turn."""
    matrix = np.exp(rng.standard_normal((n, n)))
    for _ in range(2000):
        matrix /= matrix.sum(0, keepdims=True)
        matrix /= matrix.sum(1, keepdims=True)
    return matrix


def _weight(difference: float) -> float:
    return 1 / (1 + math.exp(-difference))


@measures("spectral-norm-ellipse")
def spectral_norm_ellipse(seed: int) -> Measured:
    """The farthest point of the image of a circle, beside singular values; one matrix is pictured."""
    steps, drawn = 100_000, 20
    rng = np.random.default_rng([seed, 4600])
    angle = np.linspace(0, 2 * math.pi, steps, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    axis, turned, closed = [], [], []
    image, values = circle, np.ones(2)
    for number in range(drawn):
        # The picture's matrix is the same with every seed; the others are drawn.
        a, b = rng.uniform(-3, 3, 2) if number < drawn - 1 else (1.2, -2.0)
        matrix = np.array([[_weight(a), _weight(-a)], [_weight(-b), _weight(b)]])
        values = _measured_values(matrix)
        image = matrix @ circle
        lengths = np.linalg.norm(image, axis=0)
        top = int(lengths.argmax())
        left = np.linalg.svd(matrix)[0][:, 0]
        axis.append(abs(lengths[top] / values[0] - 1))
        turned.append(math.acos(min(1.0, abs(float(left @ image[:, top])) / lengths[top])))
        whole, area = float(np.square(matrix).sum()), float(np.linalg.det(matrix))
        root = math.sqrt((whole + math.sqrt(max(0.0, whole**2 - 4 * area**2))) / 2)
        closed.append(abs(root - values[0]))
    some = np.append(np.arange(0, steps, steps // 90), 0)
    top = image[:, int(np.linalg.norm(image, axis=0).argmax())]
    return Measured(
        axis_error=max(axis),
        angle_error=max(turned),
        closed_form_error=max(closed),
        norm_drawn=values[0],
        least_drawn=values[1],
        picture=Picture(
            "first token",
            "second token",
            {
                "unit circle": circle[:, some],
                "its image": image[:, some],
                "longest semi-axis": np.stack([np.zeros(2), top], 1),
            },
            equal=True,
            faint=("unit circle",),
        ),
    )


@measures("jensen-step")
def jensen_step(seed: int) -> Measured:
    """The largest ratio of both sides over all x, of every drawn matrix."""
    count = 400
    rng = np.random.default_rng([seed, 4610])
    ratios, ones = [], []
    for matrix in attention_matrices(rng, count):
        columns = matrix.sum(0)
        scaled = matrix / np.sqrt(columns)
        ratios.append(float(np.linalg.eigvalsh(scaled.T @ scaled)[-1]))
        ones.append(float(np.square(matrix.sum(1)).sum() / columns.sum()))
    return Measured(largest_ratio=max(ratios), ratio_of_ones=farthest_from_one(ones), count=count)


@measures("never-shortens-every-vector")
def never_shortens_every_vector(seed: int) -> Measured:
    """What becomes of the vector of ones, and the least norm of all drawn matrices."""
    rng = np.random.default_rng([seed, 4630])
    errors, norms = [], []
    for matrix in attention_matrices(rng, DRAWN_MATRICES):
        u = np.full(len(matrix), len(matrix) ** -0.5)
        errors.append(float(np.abs(matrix @ u - u).max()))
        norms.append(measured_norm(matrix))
    return Measured(ones_error=max(errors), least_norm=min(norms), count=DRAWN_MATRICES)


@measures("smallest-amplification")
def smallest_amplification(seed: int) -> Measured:
    """The smallest singular values of drawn matrices and of uniform attention."""
    rng = np.random.default_rng([seed, 4640])
    values = [_measured_values(matrix) for matrix in attention_matrices(rng, DRAWN_MATRICES)]
    return Measured(
        typical_least=np.median([one[-1] for one in values]),
        largest_least=max(float(one[-1]) for one in values),
        least_norm=min(float(one[0]) for one in values),
        uniform_least=_measured_values(np.full((8, 8), 1 / 8))[-1],
        count=DRAWN_MATRICES,
    )


@measures("norm-one-iff-doubly-stochastic")
def norm_one_iff_doubly_stochastic(seed: int) -> Measured:
    """Norms of balanced matrices, and of drawn ones against the variance of their column sums."""
    count = 200
    uneven = 0.01  # the standard deviation of column sums from which on they count as uneven
    rng = np.random.default_rng([seed, 4650])
    even = [measured_norm(_balanced(rng, n)) for n in (2, 3, 5, 9, 16)]
    drawn = [
        (measured_norm(matrix), float(matrix.sum(0).var()))
        for matrix in attention_matrices(rng, count)
    ]
    return Measured(
        balanced_error=max(abs(norm - 1) for norm in even),
        variance_ratio=max((1 + variance) ** 0.5 / norm for norm, variance in drawn),
        least_excess=min(norm - 1 for norm, variance in drawn if variance > uneven**2),
        count=count,
    )


@measures("mostly-expansive")
def mostly_expansive(seed: int) -> Measured:
    """How many drawn matrices have a norm above 1, and how they amplify a random direction."""
    rng = np.random.default_rng([seed, 4660])
    norms, typical = [], []
    for matrix in attention_matrices(rng, DRAWN_MATRICES):
        norms.append(measured_norm(matrix))
        typical.append(float(np.sqrt(np.square(matrix).sum() / len(matrix))))
    return Measured(
        expansive_share=np.mean(np.array(norms) > 1 + 1e-9),
        typical_amplification=np.mean(typical),
        largest_amplification=max(typical),
    )


@measures("noise-amplified")
def noise_amplified(seed: int) -> Measured:
    """The size of drawn noise after one and after many causal matrices, and the worst error's."""
    depth, tokens = 24, 32
    rng = np.random.default_rng([seed, 4710])
    noise = rng.standard_normal((tokens, 2000))
    sizes, factors, norms, looked_at = [1.0], [], [], []
    product = np.eye(tokens)
    for _ in range(depth):
        matrix = draw_pattern(rng, tokens, spread=2)
        product = matrix @ product
        factors.append(float(np.square(matrix).sum() / tokens))
        norms.append(measured_norm(matrix))
        worst = np.linalg.svd(matrix)[2][0]
        allowed = float(matrix.sum(0) @ np.square(worst))
        looked_at.append(float(np.linalg.norm(matrix @ worst)) / allowed**0.5)
        sizes.append(float(np.sqrt(np.square(product @ noise).mean() / np.square(noise).mean())))
    shared = product @ np.ones(tokens)
    return Measured(
        norm=np.mean(norms),
        noise_after_one=sizes[1],
        noise_after_all=sizes[-1],
        factor_at_most=max(factors),
        formula_error=abs(sizes[1] / factors[0] ** 0.5 - 1),
        shared_factor=float(np.linalg.norm(shared)) / tokens**0.5,
        looked_at_ratio=max(looked_at),
        depth=depth,
        picture=Picture("attention matrices", "size of the noise", {"drawn noise": sizes}, over=0),
    )


@measures("repeated-attention-explodes")
def repeated_attention_explodes(seed: int) -> Measured:
    """The norm of a product of causal matrices, the product of norms, and values that grow."""
    from leadline.instruments.attacks.attention import optimised_attack

    depth, tokens, features, gain = 96, 32, 4, 1.1
    rng = np.random.default_rng([seed, 4700])
    limit = bound_at("product", tokens)
    product, values = np.eye(tokens), np.eye(features)
    norms, norms_multiplied = [1.0], [1.0]
    for _ in range(depth):
        matrix = draw_pattern(rng, tokens, spread=2)
        product = matrix @ product
        values = values @ (gain * np.linalg.qr(rng.standard_normal((features, features)))[0])
        norms.append(measured_norm(product))
        norms_multiplied.append(norms_multiplied[-1] * measured_norm(matrix))
    attacked = optimised_attack("causal", steps=40, seed=4700 + seed, starts=12, goal="product")
    return Measured(
        product_norm=norms[-1],
        product_of_norms=norms_multiplied[-1],
        product_ratio=max(norms) / limit,
        attacked_ratio=attacked["product"].within.ratio,
        grown_by_values=measured_norm(np.kron(product, values)),
        picture=Picture(
            "layers",
            "norm",
            {
                "norm of the product": norms,
                "product of the norms": norms_multiplied,
                "square root of n": limit,
            },
            over=0,
            y_log=True,
            faint=("square root of n",),
        ),
    )


@measures("backward-chain-non-expansive", needs=(TRAINED,))
def backward_chain_non_expansive(seed: int, results: Results) -> Measured:
    """Norms of transposed products, trained and drawn, and what is left of gradients sent back."""
    depth, tokens = 96, 16
    trained = results[TRAINED.name]
    trained_products = trained["pre"]["product_norm"]
    rng = np.random.default_rng([seed, 4950])
    gradient = rng.standard_normal(tokens)
    total = float(gradient.sum())
    uneven = gradient - total / tokens
    size = float(np.linalg.norm(uneven))
    product = np.eye(tokens)
    norms, left, transposed = [1.0], [1.0], []
    for _ in range(depth):
        matrix = draw_pattern(rng, tokens, spread=1.5)
        transposed.append(abs(largest(matrix.T.copy()) - largest(matrix)))
        product = product @ matrix.T
        norms.append(largest(product))
        left.append(float(np.linalg.norm(product @ uneven)) / size)
    return Measured(
        trained_norm=np.mean(trained["pre"]["spectral_norm"]),
        trained_product=trained_products[-1],
        least_product_norm=min(*norms, *trained_products),
        product_norm=norms[-1],
        product_ratio=max(
            max(norms) / bound_at("product", tokens),
            max(trained_products) / bound_at("product", trained["tokens"]),
        ),
        difference_left=left[-1],
        sum_error=abs(float((product @ gradient).sum()) - total),
        transposed_error=max(transposed),
        picture=Picture(
            "layers",
            "size",
            {
                "norm of the product": norms[::2],
                "gradient of sum zero": [max(one, 1e-18) for one in left[::2]],
            },
            over=range(0, depth + 1, 2),
            y_log=True,
        ),
    )


@measures("lipschitz-product")
def lipschitz_product(seed: int) -> Measured:
    """Jacobians of three layers, beside the norms of their matrices and of the layers' Jacobians."""
    import torch

    from leadline.instruments.jacobian.measure import compute_jacobian

    depth, width, tokens, scale = 3, 16, 6, 2.0
    missing = ("positions", "mlp", "norm", "connection", "placement", "embedding", "head")
    model = transformer(
        depth=depth,
        width=width,
        heads=1,
        attention="multihead(causal=false, bias=false)",
        init="xavier",
        seed=seed,
        **dict.fromkeys(missing, "none"),
    ).double()
    generator = torch.Generator().manual_seed(4720 + seed)
    x = torch.randn(1, tokens, width, generator=generator, dtype=torch.float64)
    x[0, 0] = 0  # its query looks at all keys alike, however large the others are
    first = branch_of(model, "attention")
    value_output = first.output.weight.detach() @ first.qkv.weight.detach()[2 * width :]
    through = float(torch.linalg.matrix_norm(value_output, ord=2))

    def ratio(scale: float) -> tuple[float, float]:
        norm = float(attention_by_layer(model, scale * x, "spectral_norm", seed=seed)[0])
        layer = compute_jacobian(model, scale * x, layer=1, k=1, probes=2, seed=seed)
        return float(layer.values[0, 0]) / (norm * through), norm

    near, norm = ratio(scale)
    # A fixed: the layer is X -> A X W, of norm |A| |W|, by a Kronecker product.
    q, k, _ = (scale * x[0] @ first.qkv.weight.detach().T).split(width, -1)
    fixed = torch.kron(torch.softmax(q @ k.T / width**0.5, -1), value_output)
    far = ratio(10 * scale)[0]
    whole = compute_jacobian(model, scale * x, layer=(0, depth), k=1, probes=2, seed=seed)
    assert whole.blocks is not None
    return Measured(
        jacobian_ratio=near,
        jacobian_ratio_large=far,
        growth=far / near,
        chain_ratio=whole.values[0, 0] / whole.blocks.prod(),
        frozen_ratio=float(torch.linalg.matrix_norm(fixed, ord=2)) / (norm * through),
    )


@measures("post-norm-gradients-explode")
def post_norm_gradients_explode(seed: int) -> Measured:
    """The gradient at every layer over that at the last, of untrained designs at several depths."""
    from leadline.experiments.gradient_flow.starts import batch_of, built, measured

    tokens = 32
    batch = batch_of(tokens, examples=2, seed=seed)

    def relative(design: str, depth: int) -> tuple[float, ...]:
        model = built(design, depth, width=64, heads=4, length=tokens, seed=seed)
        gradients = measured(model, batch, design=design, seed=seed).gradients
        return tuple(one / gradients[-1] for one in gradients)

    post = {depth: relative("post", depth) for depth in (12, 24, 48)}
    none, pre = relative("no norm", 24), relative("pre", 48)
    lines = {"post-norm": post[48], "pre-norm": pre, "no norm": none}
    return Measured(
        post_growth=max(post[48]),
        none_growth=max(none),
        post_most=max(max(one) for one in post.values()),
        post_least=min(min(one) for one in post.values()),
        pre_most=max(pre),
        picture=Picture("layer", "gradient at the layer / at the last", lines, over=0, y_log=True),
    )
