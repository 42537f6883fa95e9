"""What the residual of tokens is, how large it is called, and what one layer does to it.

The residual of tokens X, one per row, is res(X) = X - 1x' with x the mean token. With the matrix
C = I - 11'/n it is C X, and C C = C = C': an orthogonal projection, |X|_F^2 = |res X|_F^2 + n
|x|^2, and res(X)' res(X) / (n - 1) is the sample covariance of the tokens.

The theorems measure it by |A|_{1,inf} = sqrt(|A|_1 |A|_inf), the largest column sum and the largest
row sum of |A|; |A|_inf = max |Ax|_inf over |x|_inf = 1 is attained at signs, and |A|_1 is that of
A'. It is called a norm, but the triangle inequality fails: ones in the first row (A) and ones in
the first column (B), of size 100, measure 10 each and A + B 101. It is homogeneous,
submultiplicative (both factors are) and never below the spectral norm (Schur's test:
|A|_2^2 <= |A|_1 |A|_inf). The note does not say which norm the mean token minimises. In the
Frobenius norm it does, which is the part "claim"; in |.|_{1,inf}, where a reader puts the sentence,
it does not: (0, 0, 0, 1)' has 1.061 at the mean and 1 at 0. Since I - 11'/n measures 2 (1 - 1/n),
the mean costs at most that.

That attention wears differences away is read as: its pattern P brings tokens nearer to each other.
P is row-stochastic, so the range of a feature cannot grow (the part "claim", with random attention,
whose residual falls): range(PX) <= tau(P) range(X) with Dobrushin's tau = 1 - min_{i,k} sum_j
min(P_ij, P_kj). |res X|_F can, since |P|_2 may exceed 1: if half of the tokens copy an outlier, the
outlier becomes a group. And no bound on |P|_{1,inf} makes products converge: 1 is the least value
of a stochastic matrix, a permutation has it, and attention can be one (one-hot tokens, W_QK a large
multiple of a cyclic shift).

An MLP can raise the rank of tokens: there are inputs whose rank it raises, and a random one does it
to generic inputs. A reader carries it to where it would help, tokens that have become equal: these
have one image, and the rank stays one.

Here stand also the tokens, layers and networks on which the other files follow the residual.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leadline.claims.catalog import Measured, measures
from leadline.claims.measure.amplification import softmax

if TYPE_CHECKING:
    import torch

    from leadline.instruments.collapse.result import Collapse
    from leadline.theory.rank_collapse import StackFacts

Matrix = NDArray[np.float64]
Layer = dict[str, Any]

RESIDUAL = "log₁₀ of the residual"
RELATIVE_RESIDUAL = "log₁₀ of the relative residual"
SWAPPING_TOKENS, SWAPPING_LAYERS = 6, 100


def residual(x: Matrix) -> Matrix:
    """X - 1x' with x the mean token, by hand."""
    return x - x.mean(0, keepdims=True)


def composite(a: Matrix) -> float:
    """sqrt(|A|_1 |A|_inf), by hand: beside that of the product."""
    sizes = np.abs(a)
    return math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))


def rank_of(x: Matrix) -> float:
    """The number of singular values above a billionth of the largest."""
    return float(np.linalg.matrix_rank(x, rtol=1e-9))


def drawn_tokens(seed: int, *, tokens: int = 8, width: int = 16) -> Matrix:
    """Tokens with normal entries."""
    return np.random.default_rng([seed, tokens, width]).normal(size=(tokens, width))


def drawn_layers(seed: int, *, depth: int, width: int = 16) -> list[Layer]:
    """Layers whose four matrices have normal entries of variance 1/width."""
    rng = np.random.default_rng([seed, depth, width, 4])
    return [
        {
            name: rng.normal(size=(width, width)) / math.sqrt(width)
            for name in ("W_Q", "W_K", "W_V", "W_O")
        }
        for _ in range(depth)
    ]


def swapping_network() -> tuple[Matrix, list[Layer]]:
    """One-hot tokens and layers in which every token attends to the next one alone."""
    one = np.eye(SWAPPING_TOKENS)
    layer = {"W_Q": 1000.0 * np.roll(one, 1, axis=1), "W_K": one, "W_V": one, "W_O": one}
    return one, [layer] * SWAPPING_LAYERS


def two_tokens(start: float, *, query_key: float, value: float, depth: int) -> Collapse:
    """Follow +a and -a of width one: a -> w a tanh(tau a^2), with tau = query_key, w = value."""
    layer = {
        name: np.array([[size]])
        for name, size in (("W_Q", query_key), ("W_K", 1.0), ("W_V", value), ("W_O", 1.0))
    }
    return follow_layers(np.array([[start], [-start]]), [layer] * depth, facts=True)


def attention_network(seed: int, **fields: Any) -> Any:
    """A Transformer of attention alone in float64 that takes the stream itself, with no mask."""
    import leadline

    chosen: dict[str, Any] = {
        "attention": "multihead(causal=false)",
        "mlp": "none",
        "norm": "none",
        "placement": "none",
        "embedding": "none",
        "positions": "none",
        "head": "none",
        "init": "xavier",
    } | fields
    return leadline.Transformer(seed=seed, **chosen).double().eval()


def stream(seed: int, *, tokens: int, width: int) -> torch.Tensor:
    """The drawn tokens as one example for a model."""
    import torch

    return torch.from_numpy(drawn_tokens(seed, tokens=tokens, width=width)).unsqueeze(0)


def attend(
    x: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None
) -> Any:
    """Attention of one head on a state that is being followed; weights act as y -> y W'."""
    from torch.nn import functional as F

    runs, tokens, width = x.shape
    q, k, v = (
        F.linear(x, weight).view(runs, tokens, 1, -1).transpose(1, 2)
        for weight in (query, key, value)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)
    return mixed.reshape(runs, tokens, width)


def follow_layers(
    x: Matrix, layers: Sequence[Layer], *, heads: int = 1, causal: bool = False, facts: bool = False
) -> Collapse:
    """Follow the residual through layers that are matrices."""
    from leadline.instruments.collapse.measure import compute_collapse_weights

    return compute_collapse_weights(x, layers, heads=heads, causal=causal, facts=facts)


def follow_model(model: Any, x: torch.Tensor, *, facts: bool = False) -> Collapse:
    """Follow the residual of tokens [token, width] through a model."""
    from leadline.instruments.collapse.measure import compute_collapse

    return compute_collapse(model, x, facts=facts)


def log10_growth(followed: Collapse) -> float:
    """log10 of the last residual over the first."""
    return float(followed.log10_residual[-1] - followed.log10_residual[0])


def facts_of(followed: Collapse) -> StackFacts:
    """What the theorems ask about a network, of one that was followed with facts."""
    assert followed.facts is not None
    return followed.facts


def predicted(bound: str, facts: StackFacts) -> tuple[float, ...]:
    """log10 of what a bound says at every layer."""
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    values = COLLAPSE_BOUNDS.get(bound)().log10_values(facts)
    assert values is not None
    return values


def log10_factor(facts: StackFacts) -> float:
    """log10 of c = 4 gamma beta H / sqrt(d), the factor of the published bound."""
    from leadline.theory.rank_collapse.collapse_published import published_factor

    factor = published_factor(facts)
    assert factor is not None
    return factor


@measures("residual-is-a-projection")
def residual_is_a_projection(seed: int) -> Measured:
    """Project drawn tokens far from zero, by hand and as a followed network sees them."""
    x = drawn_tokens(seed) + 1.0
    tokens, width = x.shape
    project = np.eye(tokens) - np.full((tokens, tokens), 1.0 / tokens)
    once = project @ x
    equal = np.outer(np.ones(tokens), np.random.default_rng([seed, 78]).normal(size=width))
    along = abs(float((once * equal).sum())) / float(np.linalg.norm(once) * np.linalg.norm(equal))
    size = float(np.linalg.norm(once))
    followed = follow_layers(x, drawn_layers(seed, depth=1))
    return Measured(
        again=float(np.linalg.norm(project @ once - once)) / size,
        along=along,
        apart=abs(10.0 ** float(followed.log10_residual[0]) / size - 1.0),
    )


@measures("residual-is-centring")
def residual_is_centring(seed: int) -> Measured:
    """Compare with numpy's covariance, and the followed residual with that of shifted tokens."""
    x = drawn_tokens(seed)
    rest = residual(x)
    expected = np.cov(x, rowvar=False)
    miss = np.linalg.norm(rest.T @ rest / (len(x) - 1) - expected) / np.linalg.norm(expected)
    layers = drawn_layers(seed, depth=1)
    first, moved = (float(follow_layers(at, layers).log10_residual[0]) for at in (x, x + 100.0))
    return Measured(covariance=miss, shift=abs(10.0 ** (moved - first) - 1.0))


@measures("one-norm-is-the-largest-column-sum")
def one_norm_is_the_largest_column_sum(seed: int) -> Measured:
    """Leadline's sums of a product L R against the largest entry over all sign vectors."""
    import torch

    from leadline.instruments.collapse.weight_products import column_and_row_sums

    size = 8
    rng = np.random.default_rng([seed, 1])
    left, right = rng.normal(size=(size, 3)), rng.normal(size=(3, size))
    sums = column_and_row_sums(torch.from_numpy(left[None]), torch.from_numpy(right[None]))
    columns, rows = (float(one) for one in sums)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=size))).T
    a = left @ right
    return Measured(
        columns=abs(columns / float(np.abs(a.T @ signs).max()) - 1.0),
        rows=abs(rows / float(np.abs(a @ signs).max()) - 1.0),
    )


@measures("composite-is-a-norm")
def composite_is_a_norm(seed: int) -> Measured:
    """A row and a column of ones, then products and singular values of drawn matrices."""
    import torch

    from leadline.instruments.collapse.composite_residual import composite as measured

    def size(a: Matrix) -> float:
        return float(measured(torch.from_numpy(a)))

    row, column = np.zeros((100, 100)), np.zeros((100, 100))
    row[0], column[:, 0] = 1.0, 1.0
    rng = np.random.default_rng([seed, 60])
    product = spectral = 0.0
    for _ in range(200):
        a, b = (rng.normal(size=(6, 6)) * rng.exponential(size=(6, 1)) ** 3 for _ in range(2))
        product = max(product, size(a @ b.T) / (size(a) * size(b.T.copy())))
        spectral = max(spectral, float(np.linalg.svd(a, compute_uv=False)[0]) / size(a))
    return Measured(
        sum=size(row + column),
        triangle=size(row + column) / (size(row) + size(column)),
        product=product,
        spectral=spectral,
    )


@measures("mean-is-the-argmin")
def mean_is_the_argmin(seed: int) -> Measured:
    """Try other vectors in the Frobenius norm, and search for the least composite residual."""
    import torch

    from leadline.instruments.collapse.composite_residual import smallest_composite

    def over_least(x: Matrix) -> float:
        least = float(smallest_composite(torch.from_numpy(x).unsqueeze(0)).value)
        return composite(residual(x)) / least

    rng = np.random.default_rng([seed, 59])
    frobenius, share = 0.0, 0.0
    for _ in range(20):
        tokens = int(rng.integers(3, 8))
        x = rng.normal(size=(tokens, 3)) * rng.exponential(size=(tokens, 1))
        rest = residual(x)
        for size in (1e-3, 1e-1, 1.0):
            other = rest - size * rng.normal(size=(1, 3))
            frobenius = max(frobenius, float(np.linalg.norm(rest) / np.linalg.norm(other)))
        share = max(share, over_least(x) / (2.0 * (1.0 - 1.0 / tokens)))
    four = np.array([[0.0], [0.0], [0.0], [1.0]])
    return Measured(frobenius=frobenius, composite=over_least(four), share=share)


@measures("attention-flattens-differences")
def attention_flattens_differences(seed: int) -> Measured:
    """Ranges under drawn patterns, a layer of random attention, and one that copies an outlier."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    tokens = 10
    rng = np.random.default_rng([seed, 7])
    widest = 0.0
    for _ in range(200):
        p = rng.dirichlet(np.full(tokens, 0.2), size=tokens)
        feature = rng.normal(size=tokens)
        widest = max(widest, float(np.ptp(p @ feature) / np.ptp(feature)))
    plain = drawn_layers(seed, depth=1, width=64)[0] | {"W_V": np.eye(64), "W_O": np.eye(64)}
    drawn = follow_layers(drawn_tokens(seed, tokens=tokens, width=64), [plain])
    # Feature 1 marks the outlier; feature 2, tiny, decides who copies it.
    x = np.stack([np.eye(tokens)[-1], np.where(np.arange(tokens) % 2, 1e-3, -1e-3)], 1)
    query, key = np.array([[0.0], [1e5]]), np.array([[1.0], [0.0]])
    layer = {"W_Q": query, "W_K": key, "W_V": np.eye(2), "W_O": np.eye(2)}
    copied = 10.0 ** float(follow_layers(x, [layer]).rate[0])
    pattern = softmax((x @ query) @ (x @ key).T)
    spectral = float(spectral_norm(torch.from_numpy(pattern)).value)
    return Measured(
        range=widest,
        drawn=10.0 ** float(drawn.rate[0]),
        copied=copied,
        spectral=spectral,
        allowed=copied / spectral,
    )


@measures("composite-makes-products-converge")
def composite_makes_products_converge(seed: int) -> Measured:
    """Follow the swapping network, and contract drawn tokens by drawn patterns."""
    x, layers = swapping_network()
    tokens, layer = len(x), layers[0]
    pattern = softmax(x @ layer["W_Q"] @ (x @ layer["W_K"]).T / np.sqrt(tokens))
    rng = np.random.default_rng([seed, 6])
    share = 0.0
    for _ in range(100):
        p = rng.dirichlet(np.full(tokens, 0.3), size=tokens)
        y = rng.normal(size=(tokens, 3))
        common = np.minimum(p[:, None], p[None]).sum(-1).min()
        ratio = np.ptp(p @ y, axis=0) / np.ptp(y, axis=0)
        share = max(share, float(ratio.max()) / max(1.0 - float(common), 1e-300))
    return Measured(
        depth=len(layers),
        size=composite(pattern),
        kept=10.0 ** log10_growth(follow_layers(x, layers)),
        share=share,
    )


@measures("mlp-raises-rank")
def mlp_raises_rank(seed: int) -> Measured:
    """One random MLP of ours on two matrices of rank one: tokens on a line, and equal tokens."""
    import torch

    tokens, width = 8, 16
    kind = {"attention": "none", "mlp": "relu", "connection": "none"}
    model = attention_network(seed, depth=1, width=width, heads=1, **kind)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    direction = drawn_tokens(seed, tokens=1, width=width)
    line = np.linspace(-1.0, 1.0, tokens)[:, None] * direction

    def image(x: Matrix) -> Matrix:
        with torch.no_grad():
            return model(torch.from_numpy(x).unsqueeze(0))[0].numpy()

    curved, equal = image(line), image(np.repeat(direction, tokens, 0))
    return Measured(
        before=rank_of(line),
        after=rank_of(curved),
        equal=rank_of(equal),
        left=np.linalg.norm(residual(equal)) / np.linalg.norm(equal),
    )
