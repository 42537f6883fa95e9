"""Products of layer Jacobians: when a product of matrices vanishes, explodes or stays near 1.

Different factors (eigenvalues-decide-decay). A = [[0, 2], [0, 0]] and B = [[0, 0], [2, 0]] have no
eigenvalue but 0, and A B = [[4, 0], [0, 0]] grows: the first half is false. The second holds where
ALL eigenvalues of every factor are at least q > 1 in size, |prod| >= |det prod|^(1/n) >= q^L (the
claim too); where only the largest is (its reach), diag(2, 0.1) diag(0.1, 2) shrinks by 0.2. [[q,
2], [0, q]] and its transpose show that not every direction grows. Right are singular values;
eigenvalues decide for powers of ONE matrix, |W^L|^(1/L) -> the largest |eigenvalue| (Gelfand), and
for normal matrices.

Factors beside 1 (factors-below-one-vanish): for numbers, and for matrices that scale every
direction so, both halves are right as long as the factors keep away from 1 (the product of all 1 -
1/(i + 1)^2 is 1/2). A norm above 1 says that ONE direction grows: with singular values 1.1 and 0.5
and random directions the product vanishes (the reach).

Factors I + F_l have the band of `theory.residual_products`,

    prod (1 - |F_l|) <= sigma_min(P) <= sigma_max(P) <= prod (1 + |F_l|) <= exp(sum |F_l|)

attained by F_l = -|F_l| I and F_l = |F_l| I; random branches stay far inside. Small branches are
measured with |F_l| = 1/L, which keeps products whatever they do, and (the reach) with |F_l| = 0.1
in 96 layers, which looks small and does not shrink with depth. For numbers, (1 + e)^L <= exp(e L)
and (1 - e)^L >= (1 - 1/L)^L >= 1/4 for e <= 1/L, L >= 2. Stability is the largest |log10| of the
singular values; in the worst case, |e_l| = q,

    |log prod e| >= L log(1/q),        |log prod (I + e)| <= L log(1/(1 - q))

so identities are stabler for certain only where q < 1/2; orthogonal e (the reach) keep every
length, and I + e, with eigenvalues 1 + e^(it), does not. One layer: sigma_min(I + F') >= 1 - |F'|,
and f(x) = -x (the model of known answers, whose MLP writes beta times the token) has 1 + f' = 0.
With Lip(F) = q < 1, |y - y'| >= (1 - q) |x - x'| for y = x + F(x), and x_{k+1} = y - F(x_k)
converges to x like q^k (Banach; Behrmann et al. 2019, arXiv 1811.00995): measured on F(x) = W2
relu(W1 x) with |W2| |W1| = 0.9, while W1 = -2 I, W2 = I (the reach) makes the layer |x|.

The largest singular value of a product is taken twice: by numpy from the matrix, and by the
bidiagonalisation from the chain of factors, which never makes the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from leadline.claims.catalog import Measured, measures
from leadline.claims.claim import Picture

Matrix = NDArray[np.float64]

MANY_LAYERS, SMALL = 96, 0.1
"""The depth that the note names, and a norm of branches that looks small."""


def spectral_norm(matrix: Matrix) -> float:
    """Return the largest singular value."""
    return float(np.linalg.norm(matrix, 2))


def singular_values(matrix: Matrix) -> Matrix:
    """Return the singular values, largest first."""
    return np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)


def draw_of_norm(rng: np.random.Generator, size: int, value: float) -> Matrix:
    """Draw a Gaussian matrix, scaled to this spectral norm."""
    drawn = rng.normal(size=(size, size))
    return value * drawn / spectral_norm(drawn)


def draw_orthogonal(rng: np.random.Generator, size: int) -> Matrix:
    """Draw a rotation or reflection, evenly over all of them."""
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def draw_between(rng: np.random.Generator, size: int, low: float, high: float) -> Matrix:
    """Draw a matrix of random directions whose singular values lie between two numbers."""
    left = draw_orthogonal(rng, size)
    return left * rng.uniform(low, high, size=size) @ draw_orthogonal(rng, size)


def partial_products(factors: Sequence[Matrix]) -> list[Matrix]:
    """Return I, J_1, J_2 J_1, ... with the first factor applied first."""
    several = [np.eye(len(factors[0]))]
    for factor in factors:
        several.append(factor @ several[-1])
    return several


def product(factors: Sequence[Matrix]) -> Matrix:
    """Return J_L ... J_1."""
    return partial_products(factors)[-1]


def largest_of_chain(factors: Sequence[Matrix]) -> float:
    """Return the largest singular value of J_L ... J_1 from its factors alone."""
    import torch

    from leadline.instruments.jacobian.bidiagonal import largest
    from leadline.numerics.linear.linear_maps import Chain, Dense

    maps = [Dense(torch.from_numpy(np.ascontiguousarray(one))[None]) for one in factors]
    return float(largest(Chain(maps), 1, tolerance=1e-9).values[0, 0])


@measures("power-of-nine-tenths")
def power_of_nine_tenths(seed: int) -> Measured:
    """Take every power up to the hundredth of three factors."""
    powers = {factor: [factor**depth for depth in range(101)] for factor in (0.9, 1.0, 1.1)}
    lines = {f"factor {factor}": values for factor, values in powers.items()}
    return Measured(
        vanishing=powers[0.9][-1],
        exploding=powers[1.1][-1],
        picture=Picture("layers", "product", lines, over=0, y_log=True),
    )


@measures("one-plus-e-to-the-depth")
def one_plus_e_to_the_depth(seed: int) -> Measured:
    """Multiply equal factors a hundred times, beside the band of a product of residual factors."""
    from leadline.theory.residual_products import product_band, product_bands

    depth, least_shown = 100, 1e-12

    def power(factor: float) -> float:
        return math.prod([factor] * depth)

    even = [product_band([1.0 / layers] * layers) for layers in range(2, depth + 1)]
    lines: dict[str, list[float]] = {}
    for e in (0.01, 0.1):
        bands = product_bands([e] * depth)
        lines[f"(1 + {e:g})^L"] = [math.exp(one.log_upper) for one in bands]
        lines[f"(1 - {e:g})^L"] = [math.exp(one.log_lower) for one in bands]
        lines[f"{e:g}^L"] = [e**at for at in range(depth + 1) if e**at >= least_shown]
    return Measured(
        none=power(0.0),
        whole=power(1.0),
        grown=power(1.1),
        shrunk=power(0.9),
        hundred_up=power(1.0 + 1.0 / depth),
        hundred_down=power(1.0 - 1.0 / depth),
        even_up=max(math.exp(one.log_upper) for one in even),
        even_down=min(math.exp(one.log_lower) for one in even),
        picture=Picture(
            "layers L", "product", lines, over=0, y_log=True, faint=("0.01^L", "0.1^L")
        ),
    )


@measures("eigenvalues-decide-decay")
def eigenvalues_decide_decay(seed: int) -> Measured:
    """Multiply the counterexamples, and random factors of known singular values."""
    layers, size, powers = 40, 8, 2000
    below, above, least = 0.9, 1.1, 1.05
    rng = np.random.default_rng([seed, 103])
    nilpotent = np.array([[0.0, 2.0], [0.0, 0.0]])
    shear = np.array([[least, 2.0], [0.0, least]])
    small = [draw_between(rng, size, below - 0.01, below) for _ in range(layers)]
    large = [draw_between(rng, size, above, above + 0.01) for _ in range(layers)]
    one = rng.normal(size=(size, size)) / np.sqrt(size)
    lifted: list[Matrix] = []
    for _ in range(layers):
        drawn = rng.normal(size=(size, size))
        lifted.append(least * drawn / np.min(np.abs(np.linalg.eigvals(drawn))))
    widest = spectral_norm(product([shear, shear.T] * (layers // 2)))
    power, length = np.eye(size), 0.0
    for _ in range(powers):
        power = one @ power
        scale = spectral_norm(power)
        power, length = power / scale, length + float(np.log(scale))
    several = {
        "eigenvalues 0": partial_products([nilpotent.T, nilpotent] * (layers // 2)),
        "an eigenvalue 2": partial_products(
            [np.diag([2.0, 0.1]), np.diag([0.1, 2.0])] * (layers // 2)
        ),
        "singular values up to 0.9": partial_products(small),
    }
    lines = {name: [spectral_norm(p) for p in chain] for name, chain in several.items()}
    grown = partial_products(large)
    lines["singular values from 1.1"] = [float(singular_values(p)[-1]) for p in grown]
    return Measured(
        grown=lines["eigenvalues 0"][-1],
        shrunk=lines["an eigenvalue 2"][-1],
        all_above=spectral_norm(product(lifted)) / least**layers,
        sheared=widest,
        # Of two singular values the smaller one is the determinant over the larger one.
        narrow=least ** (2 * layers) / widest,
        decay=lines["singular values up to 0.9"][-1] / below**layers,
        growth=lines["singular values from 1.1"][-1] / above**layers,
        gelfand=float(np.exp(length / powers)) / float(np.max(np.abs(np.linalg.eigvals(one)))),
        chain=largest_of_chain(large) / spectral_norm(grown[-1]),
        picture=Picture("factors", "norm of the product", lines, over=0, y_log=True),
    )


@measures("factors-below-one-vanish")
def factors_below_one_vanish(seed: int) -> Measured:
    """Multiply a hundred matrices of known singular values."""
    layers, size = 100, 8
    rng = np.random.default_rng([seed, 104])
    sizes = np.array([1.1] + [0.5] * (size - 1))
    small = [draw_between(rng, size, 0.5, 0.9) for _ in range(layers)]
    large = [draw_between(rng, size, 1.1, 1.3) for _ in range(layers)]
    mixed = [draw_orthogonal(rng, size) * sizes @ draw_orthogonal(rng, size) for _ in range(layers)]
    vanished, one_grows = (
        [spectral_norm(one) for one in partial_products(factors)] for factors in (small, mixed)
    )
    exploded = [float(singular_values(one)[-1]) for one in partial_products(large)]
    lines = {
        "all below 0.9": vanished,
        "all above 1.1": exploded,
        "norm 1.1, the rest 0.5": one_grows,
    }
    return Measured(
        vanished=vanished[-1],
        exploded=exploded[-1],
        mixed=one_grows[-1],
        bounded=max(
            value / bound**at
            for bound, values in ((0.9, vanished), (1.1, one_grows))
            for at, value in enumerate(values)
        ),
        picture=Picture("layers", "gain of the gradient", lines, over=0, y_log=True),
    )


@measures("small-branches-keep-products")
def small_branches_keep_products(seed: int) -> Measured:
    """Multiply random branches and branches that agree, beside the band of the theorem."""
    from leadline.theory.residual_products import product_bands

    rng, eye, quiet = np.random.default_rng([seed, 105]), np.eye(16), 1.0 / MANY_LAYERS
    draws = ("random", "up", "down")

    def ends(size: float, draw: str) -> tuple[list[float], list[float]]:
        """Return the largest and smallest singular values after 0, 1, ... layers."""
        branches = {
            "random": [draw_of_norm(rng, len(eye), size) for _ in range(MANY_LAYERS)],
            "up": [size * eye] * MANY_LAYERS,
            "down": [-size * eye] * MANY_LAYERS,
        }
        chain = partial_products([eye + one for one in branches[draw]])
        values = [singular_values(one) for one in chain]
        return [float(one[0]) for one in values], [float(one[-1]) for one in values]

    singles = [draw_of_norm(rng, len(eye), SMALL) for _ in range(MANY_LAYERS)]
    gains = {(size, draw): ends(size, draw) for size in (SMALL, quiet) for draw in draws}
    uppers, lowers = (
        {
            size: [math.exp(getattr(band, end)) for band in product_bands([size] * MANY_LAYERS)]
            for size in (SMALL, quiet)
        }
        for end in ("log_upper", "log_lower")
    )
    (random_high, random_low), (up, _), (_, down) = (gains[SMALL, draw] for draw in draws)
    lines = {
        "largest, random": random_high,
        "smallest, random": random_low,
        "branches agree": up,
        "branches undo the skip": down,
        "upper bound": uppers[SMALL],
        "lower bound": lowers[SMALL],
    }
    return Measured(
        near_one=max(abs(spectral_norm(eye + one) - 1.0) / SMALL for one in singles),
        quiet_high=max(gains[quiet, draw][0][-1] for draw in draws),
        quiet_low=min(gains[quiet, draw][1][-1] for draw in draws),
        grown=up[-1],
        shrunk=down[-1],
        random_high=random_high[-1],
        random_low=random_low[-1],
        above=max(
            value / bound
            for (size, _), (highs, _) in gains.items()
            for value, bound in zip(highs, uppers[size], strict=True)
        ),
        below=min(
            value / bound
            for (size, _), (_, lows) in gains.items()
            for value, bound in zip(lows, lowers[size], strict=True)
        ),
        attained=math.sqrt(up[-1] / uppers[SMALL][-1] * down[-1] / lowers[SMALL][-1]),
        picture=Picture(
            "layers",
            "singular values of the product",
            lines,
            over=0,
            y_log=True,
            faint=("upper bound", "lower bound"),
        ),
    )


@measures("identity-products-are-stabler")
def identity_products_are_stabler(seed: int) -> Measured:
    """Multiply small and orthogonal matrices with and without the identity."""
    from leadline.theory.residual_products import product_band

    rng, eye = np.random.default_rng([seed, 112]), np.eye(16)
    small = [draw_of_norm(rng, len(eye), SMALL) for _ in range(MANY_LAYERS)]
    rigid = [draw_orthogonal(rng, len(eye)) for _ in range(MANY_LAYERS)]
    factors = {
        "I + ε": [eye + one for one in small],
        "ε": small,
        "I + orthogonal ε": [eye + one for one in rigid],
        "orthogonal ε": rigid,
    }
    values = {
        name: [singular_values(one) for one in partial_products(several)]
        for name, several in factors.items()
    }
    away = {name: float(np.max(np.abs(np.log10(rows[-1])))) for name, rows in values.items()}
    band = product_band([SMALL] * MANY_LAYERS)
    within = max(abs(band.log_lower), band.log_upper) / math.log(10.0)
    undone = [singular_values((1.0 - SMALL) * eye)] * MANY_LAYERS
    worst = abs(sum(float(np.log10(one[-1])) for one in undone))
    plain, skip = abs(float(np.log10(values["ε"][-1][0]))), away["I + ε"]
    bounds = [(q, product_band([q])) for q in np.linspace(0.01, 0.49, 49).tolist()]
    lines = {name: [float(one[0]) for one in rows] for name, rows in values.items()}
    return Measured(
        times=plain / skip,
        turned=away["orthogonal ε"] - away["I + orthogonal ε"],
        inside=max(skip, worst) / within,
        outside=plain / (MANY_LAYERS * -math.log10(SMALL)),
        half=min(-math.log(q) / abs(one.log_lower) for q, one in bounds),
        plain=-plain,
        skip=skip,
        kept=lines["orthogonal ε"][-1],
        grown=away["I + orthogonal ε"],
        picture=Picture(
            "layers", "largest singular value of the product", lines, over=0, y_log=True
        ),
    )


@measures("one-always-lets-gradients-flow")
def one_always_lets_gradients_flow(seed: int) -> Measured:
    """Take the gains of layers that write 0 and -x, and random branches beside the bound."""
    import torch

    from leadline.instruments.jacobian.bidiagonal import largest, smallest
    from leadline.numerics.linear.linearised import Linearised
    from leadline.testing.tiny import Linear
    from leadline.theory.residual_products import product_band

    rng, eye = np.random.default_rng([seed, 106]), np.eye(8)
    x = torch.from_numpy(rng.normal(size=(1, 3, len(eye))))

    def gains(beta: float) -> tuple[float, float]:
        layer = Linearised(Linear(1, alpha=0.0, beta=beta).double(), x)
        return float(largest(layer, 1).values[0, 0]), float(smallest(layer, 1).values[0, 0])

    ratios: list[float] = []
    for size in np.linspace(0.05, 0.95, 200).tolist():
        bound = math.exp(product_band([size]).log_lower)
        random, undoing = eye + draw_of_norm(rng, len(eye), size), (1.0 - size) * eye
        ratios += [float(singular_values(one)[-1]) / bound for one in (random, undoing)]
    slopes = np.linspace(-2.0, 1.0, 61)
    stopped, undone = gains(-1.0)
    return Measured(
        flat=gains(0.0)[0],
        stopped=stopped,
        kept=min(ratios),
        undone=undone,
        picture=Picture(
            "f'",
            "gain of the gradient",
            {
                "|1 + f'|": np.abs(1.0 + slopes),
                "1 - |f'|, the bound": np.maximum(0.0, 1.0 - np.abs(slopes)),
            },
            over=slopes,
            faint=("1 - |f'|, the bound",),
        ),
    )


@measures("shortcut-keeps-information")
def shortcut_keeps_information(seed: int) -> Measured:
    """Compute x back by fixed-point steps, and look for inputs that a branch makes equal."""
    from leadline.theory.residual_products import product_band

    width, pairs, lipschitz = 16, 200, 0.9
    rng = np.random.default_rng([seed, 101])
    up, down = draw_of_norm(rng, width, 1.0), draw_of_norm(rng, width, lipschitz)

    def small(x: Matrix) -> Matrix:
        return np.maximum(x @ up, 0.0) @ down

    x, other = rng.normal(size=(2, pairs, width))
    y, back = x + small(x), np.zeros_like(x)
    for _ in range(400):
        back = y - small(back)
    lengths = np.linalg.norm(x, axis=1)
    # Pairs at random, and pairs that are close: there a branch is nearly linear.
    ratios = [
        np.linalg.norm(y - (near + small(near)), axis=1) / np.linalg.norm(x - near, axis=1)
        for near in (other, x + 1e-3 * other)
    ]
    # Two hidden features per feature give the branch -q x, with which the bound is attained.
    shrunk = x - lipschitz * (np.maximum(x, 0.0) - np.maximum(-x, 0.0))
    ratios.append(np.linalg.norm(shrunk, axis=1) / lengths)
    folded = x + np.maximum(-2.0 * x, 0.0)
    mirrored = -x + np.maximum(2.0 * x, 0.0)
    bound = math.exp(product_band([lipschitz]).log_lower)
    return Measured(
        lost=np.max(np.linalg.norm(back - x, axis=1) / lengths),
        apart=np.max(np.linalg.norm(folded - mirrored, axis=1) / (2.0 * lengths)),
        kept=float(np.min(ratios)) / bound,
    )
