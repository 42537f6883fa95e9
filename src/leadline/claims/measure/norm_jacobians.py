"""Jacobians of LayerNorm and of blocks with norms: what they keep, what they remove, how large.

    J = diag(gamma) / s (I - 11'/d - x̂ x̂'/d)        `leadline.theory.norm_jacobian`, and autograd

Without eps J has two singular values 0, along 1 and x̂, and d - 2 equal to |gamma| / s for one gain
in all features, so |J| <= 1 fails at every token whose standard deviation is below the gain. For
gains that differ, min|gamma| / s <= |J| <= max|gamma| / s; where three features or more have the
largest gain, some direction of theirs is orthogonal to 1 and to the token, and the upper end is
attained, the lower one likewise: gains of two values attain both. The note's matrix I - 11'/d is a
projection with eigenvalues 0 once and 1 otherwise. "J is that matrix" is given its best case, tokens
of standard deviation 1 without gain and eps, and still off by 1: J also removes the token's own
direction. What J contains is tried by taking it with and without each ingredient; a shift that is
added has no derivative.

Products. "Below 1, so shrinking" is a conditional with a counterexample in closed form: F(x) = x
has |J_LN| = 1/2 and I + F' = 2 I in every layer, and nothing shrinks but 1 and x̂; what follows is
|J_LN (I + F')| <= |J_LN| |I + F'|. "Never zero" is said for every f, so a branch that deletes is
inside it: x - s LN(x) has the Jacobian I - (I - 11'/d - x̂ x̂'/d). What is right is
sigma_min(P) >= prod (1 - |F'_l|) where all |F'_l| < 1. "LayerNorm lowers the variance" is read as
two statements, about variances at streams of several sizes and about gradients, at the norm and in
whole stacks without skip.

Blocks are those of untrained models (`before_training`). Near the identity is less than a third of
a random gradient changed, |J - I|_F / sqrt(N), or eigenvalues within a third of 1. Notes that
assume small F' get updates / sqrt(2 L) as "claim" and Xavier's start unscaled as "reach";
|lambda - 1| <= |J - I| holds for every eigenvalue. Whether norms break the path is asked of the
product of D_l (I + F'_l) of a Post-LN stack as it is and without the D_l, each I + F' at the point
of the real pass; sizes are log10 of |P|_F / sqrt(N), and order one is a factor of ten up or down.
For F = 0 a normed stream passes the next norm unchanged: all norms together are the first one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.before_training import (
    AT_START,
    DEEP,
    build_model,
    draw_model,
    read_flow,
    watch_writes,
)
from leadline.claims.measure.layernorm import (
    EPS,
    WIDTH,
    differentiate,
    draw_tokens,
    largest,
    normalise,
)
from leadline.claims.measure.products import singular_values, spectral_norm
from leadline.theory import norm_jacobian, residual_products

DEPTH_OF_BLOCKS, DEPTH_OF_PRODUCT, LENGTH = 12, 24, 16


def measure_blocks(seed: int) -> dict[str, Any]:
    """Measure the block Jacobians of three designs, and a Post-LN product without its norms.

    As in the experiment `gradient-flow`: singular values and distances to the identity of every
    block on one example of 16 tokens.
    """
    from leadline.experiments.gradient_flow.jacobians import blocks_of, norms_apart
    from leadline.experiments.gradient_flow.starts import batch_of

    batch = batch_of(LENGTH, examples=1, seed=seed)
    results: dict[str, Any] = {}
    for design in ("pre", "scaled pre", "post"):
        model = draw_model(design, DEPTH_OF_BLOCKS, seed, length=LENGTH)
        blocks = blocks_of(model, batch, design=design, told=lambda: None)
        results[design] = {"largest": list(blocks.largest), "distance": list(blocks.distance)}
    apart = norms_apart(draw_model("post", DEPTH_OF_PRODUCT, seed, length=LENGTH), batch)
    results["norms apart"] = {
        "with": apart.with_size,
        "without": apart.without_size,
        "shrink": apart.shrink,
    }
    return results


BLOCKS = Trial("norms-block-jacobians", measure_blocks, seconds=8.0)


@measures("layernorm-jacobian-is-centring")
def layernorm_jacobian_is_centring(seed: int) -> Measured:
    """Compare the Jacobian by autograd with the note's matrix and with the full formula."""
    centring = np.eye(WIDTH) - 1.0 / WIDTH
    distances: dict[float, list[float]] = {1.0: [], 0.1: []}
    kept: dict[float, list[float]] = {1.0: [], 0.1: []}
    for std, several in distances.items():
        for x in draw_tokens(seed, 23, count=8, std=std):
            jacobian = differentiate(x, eps=0.0)
            several.append(spectral_norm(jacobian - centring))
            kept[std].append(float(np.linalg.norm(jacobian @ x) / np.linalg.norm(centring @ x)))
    rng = np.random.default_rng([seed, 24])
    errors: list[float] = []
    for x in draw_tokens(seed, 25, count=8, std=0.7):
        gamma, moved = 1.0 + 0.5 * rng.standard_normal(WIDTH), x + rng.standard_normal()
        exact = differentiate(moved, gamma=gamma)
        written = norm_jacobian.layer_norm_jacobian(moved, gamma=gamma)
        errors.append(largest(exact - written) / largest(exact))
    return Measured(
        distance_unit=min(distances[1.0]),
        distance_small=np.mean(distances[0.1]),
        lost_unit=max(kept[1.0]),
        formula_error=max(errors),
    )


@measures("layernorm-jacobian-eigenvalues")
def layernorm_jacobian_eigenvalues(seed: int) -> Measured:
    """Take eigenvalues of the note's matrix, and singular values of the Jacobian."""
    zero = 1e-9
    values = np.linalg.eigvalsh(np.eye(WIDTH) - 1.0 / WIDTH)
    counts, errors = list[int](), list[float]()
    spectrum = np.zeros(WIDTH)
    for x in draw_tokens(seed, 24, count=8, std=1.5):
        bare = singular_values(differentiate(x, eps=0.0))
        counts.append(int((bare < zero * bare[0]).sum()))
        spectrum = singular_values(differentiate(x))
        written = norm_jacobian.norm_singular_values(x, norm="layernorm")
        errors.append(largest(np.sort(written)[::-1] - spectrum) / float(spectrum[0]))
    return Measured(
        zeros=(np.abs(values) <= zero).sum(),
        largest=values.max(),
        smallest_other=values[np.abs(values) > zero].min(),
        zeros_of_jacobian=np.mean(counts),
        values_error=max(errors),
        picture=Picture(
            "rank",
            "singular value",
            {"I − 11ᵀ/d": values[::-1], "J of LayerNorm, std 1.5": spectrum},
            over=1,
        ),
    )


@measures("layernorm-jacobian-below-one")
def layernorm_jacobian_below_one(seed: int) -> Measured:
    """Take the spectral norm by autograd and SVD over standard deviations of the token."""
    rng = np.random.default_rng([seed, 26])
    stds = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    last = WIDTH - 3  # of the directions that are kept: all but 1 and the token's
    two_gains = np.where(np.arange(WIDTH) % 2, 2.0, 0.5)
    norms: dict[float, float] = {}
    errors, excess, apart = list[float](), list[float](), list[float]()
    for std in stds:
        several: list[float] = []
        for x in draw_tokens(seed, 25, count=4, std=std):
            norm = spectral_norm(differentiate(x))
            several.append(norm)
            written = float(norm_jacobian.norm_singular_values(x, norm="layernorm").max())
            errors.append(abs(norm - written) / norm)
            gamma = 1.0 + 0.5 * rng.standard_normal(WIDTH)
            values = singular_values(differentiate(x, gamma=gamma))
            low, high = norm_jacobian.norm_singular_bounds(x, norm="layernorm", gamma=gamma)
            excess += [float(values[0] / high.max()), float(low.max() / values[0])]
            values = singular_values(differentiate(x, gamma=two_gains))
            low, high = norm_jacobian.norm_singular_bounds(x, norm="layernorm", gamma=two_gains)
            apart += [abs(high[0] / values[0] - 1.0), abs(low[last] / values[last] - 1.0)]
        norms[std] = float(np.mean(several))
    return Measured(
        norm_tenth=norms[0.1],
        norm_embedding=norms[0.02],
        norm_ten=norms[10.0],
        formula_error=max(errors),
        band_excess=max(excess),
        attained=max(apart),
        picture=Picture(
            "standard deviation of the token",
            "spectral norm of J",
            {
                "measured": norms.values(),
                "limit of the note": 1.0,
                "1/σ": [1.0 / std for std in stds],
            },
            over=stds,
            x_log=True,
            y_log=True,
            faint=("limit of the note", "1/σ"),
        ),
    )


@measures("layernorm-jacobian-whole-vector")
def layernorm_jacobian_whole_vector(seed: int) -> Measured:
    """Look at the matrix that autograd gives, and at the one after a step of feature 0."""
    beside, moved, typical = list[float](), list[float](), list[float]()
    for x in draw_tokens(seed, 27, count=8, std=2.0):
        jacobian = differentiate(x)
        diagonal = np.diag(jacobian)
        beside.append(largest(jacobian - np.diag(diagonal)) / largest(diagonal))
        step = x.copy()
        step[0] += 2.0
        # Entries that do not touch feature 0 change too: mean and standard deviation do.
        change = (differentiate(step) - jacobian)[1:, 1:]
        moved.append(largest(change) / largest(diagonal))
        typical.append(float(np.median(np.linalg.eigvals(jacobian).real)))
    return Measured(off_diagonal=min(beside), moved=min(moved), typical=max(typical))


@measures("shift-in-the-jacobian")
def shift_in_the_jacobian(seed: int) -> Measured:
    """Exchange scale, size and shift in turn and see which changes the Jacobian."""
    rng, width = np.random.default_rng([seed, 28]), 32
    changes: dict[str, list[float]] = {"scale": [], "size": [], "shift": [], "mean": []}
    for x in draw_tokens(seed, 29, count=4, width=width):
        plain = differentiate(x)
        others = {
            "scale": differentiate(x, gamma=1.0 + 0.5 * rng.standard_normal(width)),
            "size": differentiate(2.0 * x),
            "shift": differentiate(x, beta=rng.standard_normal(width)),
        }
        for name, other in others.items():
            changes[name].append(float(np.linalg.norm(other - plain) / np.linalg.norm(plain)))
        changes["mean"].append(largest(plain @ np.ones(width)) / largest(plain))
    return Measured(
        scale_change=min(changes["scale"]),
        size_change=min(changes["size"]),
        shift_change=max(changes["shift"]),
        mean_left=max(changes["mean"]),
    )


@measures("layernorm-lowers-variance", needs=(AT_START,))
def layernorm_lowers_variance(seed: int, trials: Results) -> Measured:
    """Measure variances and gradients at one norm, and gradients of stacks without skip."""
    rng, small = np.random.default_rng([seed, 19]), 0.1
    raised = 0.0
    gains, errors, gain_errors = list[float](), list[float](), list[float]()
    for std in (small, 1.0, 10.0):
        x = draw_tokens(seed, 18, count=16, std=std)
        after = normalise(x).var(axis=1)
        errors.append(largest(after - std**2 / (std**2 + EPS)))
        for token in x[:4]:
            jacobian, gradient = differentiate(token), rng.standard_normal(WIDTH)
            norm = spectral_norm(jacobian)
            written = float(norm_jacobian.norm_singular_values(token, norm="layernorm").max())
            gain_errors.append(abs(norm - written) / norm)
            if std == small:
                gains.append(_length_left(jacobian, gradient))
        if std == small:
            raised = float(after.min()) / std**2
    return Measured(
        raised=raised,
        gain_small=min(gains),
        least_ratio=min(read_flow(trials, "no skip").ratio[depth] for depth in DEEP),
        variance_error=max(errors),
        gain_error=max(gain_errors),
    )


@measures("norm-factors-shrink")
def norm_factors_shrink(seed: int) -> Measured:
    """Pull a gradient back through 100 layers LN(x + c x)."""
    rng = np.random.default_rng([seed, 45])
    width, depth, shares = 32, 100, (0.0, 0.5, 1.0, 1.5)
    identity = np.eye(width)
    start = norm_jacobian.normed(rng.standard_normal(width), norm="layernorm", eps=EPS)[0]
    gradient = rng.standard_normal(width)
    bounds: list[float] = []
    for _ in range(depth):
        added = identity + 0.2 * rng.standard_normal((width, width))
        norm = norm_jacobian.layer_norm_jacobian(added @ start)
        bounds.append(spectral_norm(norm @ added) / (spectral_norm(norm) * spectral_norm(added)))
    factors: dict[float, float] = {}
    lengths: dict[float, list[float]] = {}
    for share in shares:
        x, norms = start, []
        for _ in range(depth):
            total = (1.0 + share) * x
            norms.append(norm_jacobian.layer_norm_jacobian(total))
            x = norm_jacobian.normed(total, norm="layernorm", eps=EPS)[0]
        factors[share] = max(map(spectral_norm, norms))
        pulled, lengths[share] = gradient, [1.0]
        for norm in reversed(norms):
            pulled = (norm @ ((1.0 + share) * identity)).T @ pulled
            lengths[share].append(float(np.linalg.norm(pulled) / np.linalg.norm(gradient)))
    lines = {f"F(x) = {share:g} x": several for share, several in lengths.items()}
    return Measured(
        factor=factors[1.0],
        left=lengths[1.0][-1],
        bound=max(bounds),
        picture=Picture("layers", "length of the gradient", lines, over=0, y_log=True),
    )


@measures("gradient-never-zero", needs=(AT_START,))
def gradient_never_zero(seed: int, trials: Results) -> Measured:
    """Take gradients of drawn models, one branch that deletes, and products of small branches."""
    rng, width = np.random.default_rng([seed, 46]), 32
    x, gradient = rng.standard_normal((2, width))
    direction, s = norm_jacobian.normed(x, norm="layernorm", eps=0.0)
    for lost in (np.ones(width), direction):
        gradient -= lost * (gradient @ lost) / (lost @ lost)
    deleting = np.eye(width) - s * norm_jacobian.layer_norm_jacobian(x, eps=0.0)
    product, norms = np.eye(width), []
    for _ in range(24):
        weight = rng.standard_normal((width, width))
        weight *= 0.05 / spectral_norm(weight @ norm_jacobian.layer_norm_jacobian(x))
        branch = weight @ norm_jacobian.layer_norm_jacobian(x)
        norms.append(spectral_norm(branch))
        product = (np.eye(width) + branch) @ product
        x = x + weight @ norm_jacobian.normed(x, norm="layernorm", eps=EPS)[0]
    smallest = float(singular_values(product)[-1])
    return Measured(
        least=min(read_flow(trials, "pre").least.values()),
        least_gpt2=min(read_flow(trials, "gpt2-scaled").least.values()),
        deleted=_length_left(deleting, gradient),
        kept=smallest,
        bound=math.exp(residual_products.product_band(norms).log_lower) / smallest,
    )


@measures("pre-norm-blocks-near-identity", needs=(BLOCKS,))
def pre_norm_blocks_near_identity(seed: int, trials: Results) -> Measured:
    """Read the distances of blocks to the identity of three designs."""
    blocks = trials[BLOCKS.name]
    pre, scaled, post = (blocks[design]["distance"] for design in ("pre", "scaled pre", "post"))
    return Measured(
        first=pre[0],
        last=pre[-1],
        last_over_first=pre[-1] / pre[0],
        strongest=blocks["pre"]["largest"][0],
        scaled=max(scaled),
        post=sum(post) / len(post),
        picture=Picture(
            "layer",
            "distance of J to the identity",
            {"Pre-LN": pre, "Pre-LN, updates / √(2L)": scaled, "Post-LN": post},
            over=1,
        ),
    )


@measures("norms-break-the-path", needs=(BLOCKS,))
def norms_break_the_path(seed: int, trials: Results) -> Measured:
    """Read the product with and without the norms, and take it again with small branches."""
    from leadline.experiments.gradient_flow.jacobians import norms_apart
    from leadline.experiments.gradient_flow.starts import batch_of

    model = build_model(
        DEPTH_OF_PRODUCT, seed, length=LENGTH, connection="weighted(alpha=depth)", placement="post"
    )
    small = norms_apart(model, batch_of(LENGTH, examples=1, seed=seed))
    unscaled = trials[BLOCKS.name]["norms apart"]
    return Measured(
        with_norms=unscaled["with"],
        without_norms=unscaled["without"],
        shrink=unscaled["shrink"],
        taken=unscaled["without"] - unscaled["with"],
        small_without=small.without_size,
        small_with=small.with_size,
        compressed=small.with_size - small.without_size,
    )


@measures("pre-norm-eigenvalues-near-one")
def pre_norm_eigenvalues_near_one(seed: int) -> Measured:
    """Take eigenvalues of dense block Jacobians of Pre-LN with and without scaling.

    The scaled model has 48 layers, since small updates are those of a deep one.
    """
    scaled, _, _ = _measure_eigenvalues("scaled pre", 48, seed)
    unscaled, blocks, first_branch = _measure_eigenvalues("pre", 12, seed)
    first_norm = unscaled[0][1]
    lines = {"Pre-LN": unscaled, "Pre-LN, updates / √(2L)": scaled}
    return Measured(
        scaled=max(far for far, _ in scaled),
        first=unscaled[0][0],
        bound=max(far / norm for far, norm in (*scaled, *unscaled)),
        largest=spectral_norm(blocks[0]),
        norm_error=abs(first_branch - first_norm) / first_norm,
        picture=Picture(
            "layer",
            "largest |λ − 1|",
            {label: [far for far, _ in several] for label, several in lines.items()},
            over=1,
        ),
    )


def _measure_eigenvalues(
    design: str, depth: int, seed: int
) -> tuple[list[tuple[float, float]], list[Any], float]:
    """Return the largest |lambda - 1| and |J - I| of every block, and the dense blocks.

    The last number is |J - I| of the first block, measured without a dense matrix.
    """
    import torch

    from leadline.experiments.gradient_flow.starts import batch_of, plain_attention
    from leadline.instruments.jacobian.measure import compute_jacobian

    length = 8
    model = draw_model(design, depth, seed, width=16, heads=2, length=length)
    writes = watch_writes(model, seed, length=length, examples=1)
    step = len(model.recipe.branches)
    blocks: list[Any] = []
    with plain_attention():
        for block, x, run in zip(
            model.blocks, writes.states[::step], writes.runs[::step], strict=False
        ):
            whole = torch.autograd.functional.jacobian(
                lambda v, f=block, r=run: f(v, r), x, vectorize=True
            )
            assert isinstance(whole, torch.Tensor)
            blocks.append(whole.reshape(x.numel(), x.numel()).numpy())
        ids = batch_of(length, examples=1, seed=seed).ids
        first = compute_jacobian(model, ids, layer=1, k=1, probes=2, tolerance=1e-4)
    sizes: list[tuple[float, float]] = []
    for block in blocks:
        branch = block - np.eye(len(block))
        sizes.append((float(np.abs(np.linalg.eigvals(branch)).max()), spectral_norm(branch)))
    return sizes, blocks, float(first.branch[0])


def _length_left(jacobian: Any, gradient: Any) -> float:
    """Return the length of a gradient behind a Jacobian over the one before."""
    return float(np.linalg.norm(jacobian.T @ gradient) / np.linalg.norm(gradient))
