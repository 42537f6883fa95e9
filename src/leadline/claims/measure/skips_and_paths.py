"""What skips do: the paths that they add, and whether they keep tokens apart.

The output of attention layers is a sum over paths that take one head, or with skips none, per
layer: SAN(X) = sum_path P_path X W_path + 1b'. Weights act from the right, on each token alone;
patterns from the left, on all tokens that a row gives weight to. The P_path are products of
stochastic matrices and depend on X, the W_path and b do not (P 1 = 1 makes biases the same for all
tokens and inputs; with norms in the blocks b depends on the input). Paths run over {0, ..., H}^L
with a skip and over [H]^L without (the note prints [H]): C(L, l) H^l of length l, (1 + H)^L in all,
H^L without a skip. The ratio (1 + 1/H)^L is about e^{L/H}: 4096 for the note's experiment, one head
and 12 layers, and (13/12)^12 = 2.6 for GPT-2. The path of length 0 passes the input on. Each path
is one head per layer with the patterns of this forward pass (the part "claim"); single-head
networks that compute their patterns from streams of their own sum to another output. Short paths
keep more of the differences: the mean of |res Y| / |Y| over drawn paths Y of a length, as in the
paper.
Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404, theorem 2.1.

|res X^L| >= |res X| is said to hold where updates U are orthogonal to their inputs, read as
<X, U> = 0 and as token by token. <X, U> = <res X, res U> + n <x, u> with the mean tokens, so an
update may take the residual away and make up for it in the mean: tokens 2 and 0 that look at each
other alone have U = (0, 2)', orthogonal token by token, and X + U = (2, 2)'. The true condition is
<res X, res U> >= 0 at every write (`skip-keeps-residual`), which holds if every token of U is
orthogonal to every token of X. Infinitely many weights meet it: W_V = 0 with any queries and keys,
and even patterns (W_QK = 0) with any values, whose update is the same for all tokens; read for
"however deep", 100 layers. In the note's experiment the mean over the samples, which its figure
draws, is kept at every layer, and single samples fall below their start by a fraction of a per
cent. "Skips prevent the collapse" holds there (the part "claim"), names no conditions and is
carried further: without norms |res X| / |X|, which is what a norm passes on, falls, since the mean
grows faster than the differences; and with P near the identity and W_V = -1 the update takes the
stream away. With norms before the branches the relative residual falls only slowly.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, Results, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.amplification import softmax
from leadline.claims.measure.collapse_speed import NOTE_FIGURE, SKIP, note_curves
from leadline.claims.measure.cubic_bound import search
from leadline.claims.measure.token_residuals import (
    RELATIVE_RESIDUAL,
    Matrix,
    attention_network,
    follow_model,
    log10_growth,
    rank_of,
    residual,
    stream,
)

if TYPE_CHECKING:
    import torch

Heads = list[list[tuple[Matrix, ...]]]


def path_network(seed: int, *, depth: int, width: int, heads: int, **fields: Any) -> Any:
    """A network of attention whose weights are all drawn, and biases where it has them."""
    import torch

    chosen = {"attention": "multihead(causal=false, bias=false)"} | fields
    model = attention_network(seed, depth=depth, width=width, heads=heads, **chosen)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise / math.sqrt(width) if parameter.ndim > 1 else 1.0 + 0.3 * noise)
    return model


def components(model: Any, x: torch.Tensor) -> tuple[Matrix, Matrix | None, Matrix]:
    """Z_l and B_l [length, token, width] (None: no biases), and the last stream, of one example."""
    import torch

    import leadline
    from leadline.instruments.passes.running import call
    from leadline.instruments.paths.carried.carried import Journey
    from leadline.instruments.paths.carried.model_pass import carry_through
    from leadline.models.inputs.for_model import batch_for

    batch = batch_for(model, x, 0)
    stack = leadline.anatomy_of(model, batch).stacks[0]
    with torch.no_grad():
        passed = carry_through(model, stack, lambda: call(model, batch), Journey())
        parts = passed.stream.parts
        assert parts is not None
        inputs = parts.inputs.hold()
        sources = None if parts.sources is None else parts.sources.hold()
    return (
        inputs[:, 0].numpy(),
        None if sources is None else sources[:, 0].numpy(),
        passed.stream.value[0].numpy(),
    )


def heads_of(model: Any, width: int, heads: int) -> Heads:
    """(W_Q, W_K, W_h) of every layer and head, without biases; they act from the right."""
    size = width // heads
    cuts = [slice(h * size, (h + 1) * size) for h in range(heads)]
    layers: Heads = []
    for block in model.blocks:
        branch = block.attention.branch
        q, k, v = (w.detach().numpy().T for w in branch.qkv.weight.split(width))
        out = branch.output.weight.detach().numpy().T
        layers.append([(q[:, c], k[:, c], v[:, c] @ out[c]) for c in cuts])
    return layers


def forward(x: Matrix, layers: Heads, *, skip: bool) -> tuple[Matrix, list[list[Matrix]]]:
    """The output, and the pattern of every layer and head, by hand."""
    patterns: list[list[Matrix]] = []
    for layer in layers:
        here = [softmax((x @ q) @ (x @ k).T / math.sqrt(q.shape[1])) for q, k, _ in layer]
        after = x.copy() if skip else np.zeros_like(x)
        for pattern, (_, _, weights) in zip(here, layer, strict=True):
            after += pattern @ x @ weights
        x = after
        patterns.append(here)
    return x, patterns


def walk_paths(
    x: Matrix, layers: Heads, patterns: list[list[Matrix]], *, skip: bool
) -> tuple[list[Matrix], list[int], float]:
    """The sum of all paths of each length, their number, and how far rows of P_path miss 1."""
    sums = [np.zeros_like(x) for _ in range(len(layers) + 1)]
    counts, worst = [0] * (len(layers) + 1), 0.0
    for path in itertools.product(range(0 if skip else 1, len(layers[0]) + 1), repeat=len(layers)):
        mixed, y = np.eye(len(x)), x
        for at, head in enumerate(path):
            if head:
                mixed = patterns[at][head - 1] @ mixed
                y = y @ layers[at][head - 1][2]
        hops = sum(head > 0 for head in path)
        sums[hops] = sums[hops] + mixed @ y
        counts[hops] += 1
        worst = max(worst, float(np.abs(mixed.sum(1) - 1.0).max()))
    return sums, counts, worst


@measures("left-mixes-right-does-not")
def left_mixes_right_does_not(seed: int) -> Measured:
    """Move one token through the weights and through the pattern of one head."""
    width = 8
    layers = heads_of(
        path_network(seed, depth=1, width=width, heads=1, connection="none"), width, 1
    )
    x = stream(seed, tokens=6, width=width)[0].numpy()
    _, patterns = forward(x, layers, skip=False)
    moved = x.copy()
    moved[0] += 1.0
    weights = layers[0][0][2]
    right = np.abs(moved[1:] @ weights - x[1:] @ weights).max()
    whole = np.abs(moved @ weights - x @ weights)[1:].max()
    left = np.abs(patterns[0][0] @ moved - patterns[0][0] @ x)[1:].sum(1)
    return Measured(right=max(right, whole), left=left.min() / left.mean())


@measures("output-is-a-sum-over-paths")
def output_is_a_sum_over_paths(seed: int) -> Measured:
    """Walk all paths by hand beside the carried components, without and with norms."""
    width, heads = 8, 2
    shape: dict[str, Any] = {"depth": 4, "width": width, "heads": heads, "connection": "identity"}
    inputs = [stream(seed + at, tokens=5, width=width) for at in (0, 100)]
    plain = path_network(seed, **shape)
    layers = heads_of(plain, width, heads)
    x = inputs[0][0].numpy()
    lengths, _, _ = components(plain, inputs[0])
    end, patterns = forward(x, layers, skip=True)
    walked, counts, rows = walk_paths(x, layers, patterns, skip=True)
    off = max(
        float(np.linalg.norm(one - other) / np.linalg.norm(other))
        for one, other in zip(lengths, walked, strict=True)
    )

    def biases(**fields: Any) -> tuple[float, float]:
        """Change of the bias part over tokens and inputs, and what the components leave over."""
        attention = "multihead(causal=false, bias=true)"
        model = path_network(seed, **shape, attention=attention, **fields)
        split = [components(model, one) for one in inputs]
        parts = [np.asarray(sources).sum(0) for _, sources, _ in split]
        change = max(float(np.abs(part - parts[0][0]).max()) for part in parts)
        z, _, out = split[0]
        left = np.linalg.norm(z.sum(0) + parts[0] - out) / np.linalg.norm(out)
        return change / float(np.abs(parts[0]).max()), float(left)

    bias, whole = biases()
    normed, normed_whole = biases(norm="layernorm", placement="pre")
    by_hand = float(np.linalg.norm(sum(walked) - end) / np.linalg.norm(end))
    return Measured(
        paths=sum(counts),
        whole=max(by_hand, whole),
        lengths=off,
        rows=rows,
        bias=bias,
        normed=normed,
        normed_whole=normed_whole,
    )


@measures("path-counts-by-length")
def path_counts_by_length(seed: int) -> Measured:
    """Walk, carry and compute the numbers of paths."""
    from leadline.instruments.paths.measure import compute_paths

    depth, heads, width = 5, 3, 12
    inputs = stream(seed, tokens=4, width=width)
    x = inputs[0].numpy()
    right = [math.comb(depth, l) * heads**l for l in range(depth + 1)]
    walked: dict[bool, list[int]] = {}
    carried: dict[bool, tuple[int, ...]] = {}
    for skip, connection in ((True, "identity"), (False, "none")):
        model = path_network(seed, depth=depth, width=width, heads=heads, connection=connection)
        layers = heads_of(model, width, heads)
        _, patterns = forward(x, layers, skip=skip)
        walked[skip] = walk_paths(x, layers, patterns, skip=skip)[1]
        carried[skip] = compute_paths(model, inputs, logits=False).counts or ()

    def off(counts: list[int] | tuple[int, ...], wanted: list[int]) -> float:
        return float(sum(abs(a - b) for a, b in zip(counts, wanted, strict=True)))

    longest = [0] * depth + [heads**depth]
    return Measured(
        depth=depth,
        heads=heads,
        total=sum(walked[True]),
        without=sum(walked[False]),
        walked=off(walked[True], right) + abs(sum(right) - (1 + heads) ** depth),
        carried=off(carried[True], right),
        plain=off(carried[False], longest) + off(walked[False], longest),
        picture=Picture(
            "attention layers on the path", "paths", {"with skip": carried[True]}, over=0
        ),
    )


@measures("many-more-paths-with-skip")
def many_more_paths_with_skip(seed: int) -> Measured:
    """Count paths of several shapes with and without skips."""
    from leadline.instruments.paths.result import path_counts
    from leadline.parts import Recipe

    def counts(depth: int, heads: int, skip: bool) -> tuple[int, ...]:
        return path_counts([heads] * depth, [skip] * depth)

    def ratio(depth: int, heads: int) -> float:
        return sum(counts(depth, heads, True)) / sum(counts(depth, heads, False))

    gpt2 = Recipe.named("gpt2")
    assert gpt2.heads is not None
    lengths = counts(gpt2.depth, gpt2.heads, True)
    shapes = [(depth, heads) for depth in (6, 12, 48) for heads in (1, 4, 12, 25)]
    depth, heads = 12, range(1, 26)
    return Measured(
        depth=depth,
        one=ratio(depth, 1),
        gpt2=ratio(gpt2.depth, gpt2.heads),
        gpt2_depth=gpt2.depth,
        gpt2_heads=gpt2.heads,
        short=sum(lengths[:4]) / sum(lengths),
        formula=max(abs(ratio(d, h) / (1 + 1 / h) ** d - 1) for d, h in shapes),
        exponential=max(ratio(d, h) / math.exp(d / h) for d, h in shapes),
        picture=Picture(
            "heads",
            "paths with over without skips",
            {"12 layers": [ratio(depth, h) for h in heads]},
            over=heads,
            y_log=True,
        ),
    )


@measures("paths-are-single-head-networks")
def paths_are_single_head_networks(seed: int) -> Measured:
    """Sum paths with frozen patterns, and single-head networks that run by themselves."""
    depth, width, heads = 3, 8, 2
    model = path_network(seed, depth=depth, width=width, heads=heads, connection="none")
    inputs = stream(seed, tokens=5, width=width)
    x, layers = inputs[0].numpy(), heads_of(model, width, heads)
    _, _, end = components(model, inputs)
    _, patterns = forward(x, layers, skip=False)
    walked, counts, _ = walk_paths(x, layers, patterns, skip=False)
    alone = sum(
        forward(x, [[layers[at][head]] for at, head in enumerate(path)], skip=False)[0]
        for path in itertools.product(range(heads), repeat=depth)
    )
    first = forward(x, layers[:1], skip=False)[0]
    apart = sum(forward(x, [[head]], skip=False)[0] for head in layers[0]) - first
    size = float(np.linalg.norm(end))
    return Measured(
        paths=sum(counts),
        frozen=float(np.linalg.norm(sum(walked) - end)) / size,
        alone=float(np.linalg.norm(alone - end)) / size,
        one_layer=np.linalg.norm(apart) / np.linalg.norm(first),
    )


@measures("length-zero-path-keeps-rank")
def length_zero_path_keeps_rank(seed: int) -> Measured:
    """Take Z_0 out of a forward pass."""
    depth, width = 12, 16
    model = path_network(seed, depth=depth, width=width, heads=2, connection="identity")
    inputs = stream(seed, tokens=8, width=width)
    x, shortest = inputs[0].numpy(), components(model, inputs)[0][0]
    before, after = rank_of(x), rank_of(shortest)
    return Measured(
        depth=depth,
        rank=after,
        apart=np.linalg.norm(shortest - x) / np.linalg.norm(x),
        lost=before - after,
    )


@measures("short-paths-avoid-collapse")
def short_paths_avoid_collapse(seed: int) -> Measured:
    """Draw paths of every length with Leadline's decomposition."""
    from leadline.instruments.paths.measure import compute_paths

    depth, width = 8, 32
    model = attention_network(seed, depth=depth, width=width, heads=4, connection="identity")
    inputs = stream(seed, tokens=10, width=width)
    sampled = compute_paths(model, inputs, logits=False, samples=8, seed=seed).sampled
    assert sampled is not None
    shares = [float("nan") if one is None else one for one in sampled.residual]
    x = inputs[0].numpy()
    whole = float(np.linalg.norm(residual(x)) / np.linalg.norm(x))
    return Measured(
        depth=depth,
        input=whole,
        one=shares[1],
        all=shares[-1],
        ratio=shares[1] / shares[-1],
        kept=shares[0] / whole - 1.0,
        picture=Picture(
            "hops", "relative residual of a path", {"drawn paths": shares}, over=0, y_log=True
        ),
    )


@measures("zero-values-keep-the-residual")
def zero_values_keep_the_residual(seed: int) -> Measured:
    """Follow a network whose value weights are zero."""
    import torch

    depth, width = 30, 16
    model = attention_network(seed, depth=depth, width=width, heads=2, connection="identity")
    with torch.no_grad():
        for block in model.blocks:
            branch = block.attention.branch
            branch.qkv.weight.split(branch.widths)[2].zero_()
    followed = follow_model(model, stream(seed, tokens=8, width=width)[0])
    return Measured(depth=depth, change=abs(10.0 ** log10_growth(followed) - 1.0))


@measures("infinitely-many-weights-keep-the-residual")
def infinitely_many_weights_keep_the_residual(seed: int) -> Measured:
    """Follow two draws of each family: values of zero, and even patterns."""
    import torch

    depth, width = 100, 8
    x = 1.0 + stream(seed, tokens=6, width=width)[0]
    least, moved = float("inf"), float("inf")
    for draw, silent in itertools.product(range(2), ((2,), (0, 1))):
        model = attention_network(
            10 * seed + draw, depth=depth, width=width, heads=2, connection="identity"
        )
        with torch.no_grad():
            for block in model.blocks:
                branch = block.attention.branch
                parts = branch.qkv.weight.split(branch.widths)
                for part in silent:
                    parts[part].zero_()
                # Values of size 1/4, so that a hundred layers stay within the mean's digits.
                parts[2].mul_(0.25)
            first = model.blocks[0].attention.branch
            if 0 in silent:
                values = x @ first.qkv.weight.split(first.widths)[2].mT
                written = values.mean(0) @ first.output.weight.mT
                moved = min(moved, float(written.norm() / x.mean(0).norm()))
        least = min(least, 10.0 ** log10_growth(follow_model(model, x)))
    return Measured(depth=depth, least=least, moved=moved)


@measures("orthogonal-updates-keep-the-residual")
def orthogonal_updates_keep_the_residual(seed: int) -> Measured:
    """Two swapping tokens, and searches with orthogonal and with aligned updates."""
    x = np.array([[2.0], [0.0]])
    update = softmax(100.0 * (1.0 - x) @ x.T) @ x  # W_Q = -100, b_Q = 100
    swapped = np.linalg.norm(residual(x + update)) / np.linalg.norm(residual(x))
    written, true = "skip-as-written", "skip-keeps-residual"
    drawn = search("skip-orthogonal", (written,), seed=seed, climbed=0)[written].outside
    # Aligned by construction, and among all networks with a skip those that the theorem picks.
    aligned = search("skip-aligned", (true,), seed=seed)[true]
    aligned = aligned.with_(search("skip", (true,), seed=seed, climbed=0)[true])
    return Measured(
        swapped=swapped,
        drawn=drawn.ratio,
        overlap=max(layer.overlap or 0.0 for layer in drawn.facts.layers),
        aligned=1.0 / aligned.within.ratio,
    )


@measures("skip-prevents-collapse", needs=(NOTE_FIGURE,))
def skip_prevents_collapse(seed: int, trials: Results) -> Measured:
    """The note's curve, deep networks without and with norms, and a cancelling layer."""
    depth, width, tokens = 48, 32, 10
    logs = note_curves(trials, "true")[SKIP]
    x = stream(seed, tokens=tokens, width=width)[0]
    shape = {"depth": depth, "width": width, "heads": 1, "connection": "identity"}
    bare = follow_model(attention_network(seed, **shape), x)
    normed = follow_model(attention_network(seed, **shape, norm="layernorm", placement="pre"), x)
    corners = np.eye(tokens)
    after = corners - softmax(1000.0 * (corners - 1.0)) @ corners
    return Measured(
        depth=depth,
        kept=10.0 ** (logs[-1] - logs[0]),
        relative=bare.log10_relative[-1],
        absolute=log10_growth(bare),
        normed=normed.log10_relative[-1],
        cancelled=np.linalg.norm(residual(after)) / np.linalg.norm(residual(corners)),
        picture=Picture(
            "layer",
            RELATIVE_RESIDUAL,
            {"skip, no norm": bare.log10_relative, "skip, pre-norm": normed.log10_relative},
            over=0,
        ),
    )
