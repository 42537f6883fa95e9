"""What a head does: its weights, its mask, its scaling, its biases, and several heads together.

A = softmax(S + M) row by row: positive weights that sum to one, exact zeros where M is minus infinity.
So neither a weight nor a gradient goes from a later token to an earlier one: J' u of any u that stands
on the first tokens is zero behind them, which `leadline.jacobian` proves by cutting the text at every
place; a model without the mask beside it shows that the proof can fail.

Generation and the mask: the note writes attention for all tokens of a text at once, so the claim is
read there, where the text so far goes through anew for every token and earlier tokens would see later
ones. The reach is generation as it is done: with the keys and values of earlier tokens kept, each new
token is one query over all keys that exist, and nothing is hidden (`parts.generation`).

Scaling (Vaswani et al. 2017, arXiv 1706.03762, footnote 4): for independent entries of variance one
the product has variance d_h, and the scaled product variance one at any width: the claim. A query that
points along its key has the scaled product sqrt(d_h): the reach. The note writes Q K' / sqrt(h), where
h numbers the head, and says in words that it is the root of the width of queries and keys. The formula
is read as written, h the head's number or the number of heads, whichever comes nearer; the words are
the correction. What is really divided by is read from the logits by the probe `attention`.

Products and alignment: <q, k> = |q| |k| cos, so for one query the order of the products is that of
|k| cos. Read as: of two keys of a query the one with the larger product has the larger cosine. Keys
are those of a random head on normed tokens, whose lengths differ because W_K is not orthogonal; with
keys of one length (a norm on the keys) it is right.

The bias of the keys drops out of the softmax,

    softmax((X W_Q + 1 b_Q')(X W_K + 1 b_K')') = softmax(X W_QK X' + 1 b_Q' W_K' X'),

because its terms are the same for all keys of a row: plain products, the claim. Rotary positions turn
each key by its own angle and b_K with it, so nothing cancels: the reach.

Concatenated heads times W_O are a sum over heads,

    [h_1 ... h_H] W_O + b_O = sum_h P_h X W_h + 1 b_O',   W_h = W_V,h W_O,h,

with W_O,h the rows of W_O that meet head h: exact without value biases, the form of the note's first
part. Its later form has a bias b_V and keeps b_O as it is: the reach. Since P_h 1 = 1 the value biases
pass through, and b_O must take them in: b_O + sum_h W_O,h' b_V,h.

A weight is at most 1 / (1 + (n-1) e^-D) where the logits of a row differ by at most D: sharp for one
logit at the top and all others D below. Under a causal mask row i has i keys, so n must be i: the reach.

Ranges of heads are mean attention distances sum_j A_ij |i - j|. "Different" is read as a factor of two
between the farthest and the nearest head of the whole model; within one layer it is the reach. The
control is an untrained model, whose heads average over everything before them.

Beyond one average: one head gives a point of the convex hull of the values. For two tokens with the
values (0, 0) and (1, 1), a head for the first feature that looks at the first token and one for the
second that looks at the second give (0, 1); averages are (t, t), the nearest at sqrt(1/2). How far
trained heads differ is their Jensen-Shannon divergence (probe `attention`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, Results, measures
from leadline.claims.claim import Picture
from leadline.claims.measure.amplification import softmax
from leadline.claims.measure.architecture import (
    attention_by_layer,
    attention_record,
    branch_of,
    hf_model,
    transformer,
)
from leadline.claims.measure.attention_in_models import TRAINED, text_windows


@measures("attention-rows-sum-to-one")
def attention_rows_sum_to_one(seed: int) -> Measured:
    """Sum the rows of drawn heads and of a small GPT-2, and ask the probe about that model."""
    import torch

    from leadline.instruments.attacks.heads import KINDS, DrawnHeads

    generator = torch.Generator().manual_seed(4100 + seed)
    errors, least = [], []
    for kind in ("open", "open-rotary", "causal", "causal-rotary", "random"):
        for n in (2, 5, 12):
            weights = DrawnHeads(KINDS[kind], 20, n, generator=generator).attention()[0].detach()
            errors.append(float((weights.sum(-1) - 1).abs().max()))
            least.append(float(weights.min()))
    model = hf_model("gpt2", seed=seed, attn_implementation="eager")
    ids = torch.randint(100, (2, 16), generator=generator)
    with torch.no_grad():
        gpt2 = torch.stack(model(ids, output_attentions=True).attentions)
    layers = attention_record(model, ids, seed=seed).provenance["attention"]
    return Measured(
        row_error=max(errors),
        least_weight=min(*least, float(gpt2.min())),
        gpt2_row_error=(gpt2.double().sum(-1) - 1).abs().max(),
        layers_not_stochastic=sum(not one["stochastic"] for one in layers),
    )


@measures("largest-weight-bound")
def largest_weight_bound(seed: int) -> Measured:
    """Largest weights of rows whose logits lie within a span, without a mask and causal."""
    rng = np.random.default_rng([seed, 4830])
    plain, causal, counted = [], [], []
    for number in range(300):
        n, span = int(rng.integers(2, 20)), float(rng.uniform(0, 8))
        logits = span * rng.random((n, n))
        if number % 3 == 0:
            logits = span * np.eye(n)
        bound = 1 / (1 + (n - 1) * math.exp(-span))
        masked = softmax(np.where(np.tril(np.ones((n, n), bool)), logits, -np.inf)).max(1)
        by_row = 1 / (1 + np.arange(n) * math.exp(-span))
        plain.append(float(softmax(logits).max()) / bound)
        causal.append(float(masked.max()) / bound)
        counted.append(float((masked / by_row).max()))
    return Measured(ratio_open=max(plain), ratio_causal=max(causal), ratio_counted=max(counted))


def _stack(causal: str, **sizes: int) -> Any:
    attention = f"multihead(causal={causal})"
    return transformer(**sizes, vocabulary=50, init="xavier", attention=attention).double()


@measures("mask-hides-the-future")
def mask_hides_the_future(seed: int) -> Measured:
    """Look for leaks in a masked and in an open stack, and at the weights themselves."""
    import torch

    from leadline.instruments.jacobian.measure import compute_jacobian
    from leadline.models.inputs import random_tokens
    from leadline.numerics.reference import attention_weights

    leaks = []
    for causal in ("true", "false"):
        model = _stack(causal, depth=2, width=16, heads=2, context=8, seed=seed)
        ids = random_tokens(model, examples=1, length=8, seed=seed)
        leaks.append(float(compute_jacobian(model, ids, k=1, probes=2, seed=seed).leak))
    generator = torch.Generator().manual_seed(4110 + seed)
    query, key = torch.randn(2, 8, 4, generator=generator, dtype=torch.float64)
    masked = attention_weights(query, key, scaling=0.5, causal=True)
    kept = attention_weights(query, key, scaling=0.5).tril()
    kept = kept / kept.sum(-1, keepdim=True)
    return Measured(
        leak_masked=leaks[0],
        leak_open=leaks[1],
        weight_above=masked.triu(1).abs().max(),
        proportion_error=(masked - kept).abs().max(),
    )


@measures("generation-needs-mask")
def generation_needs_mask(seed: int) -> Measured:
    """Compare a masked pass with an open one and with open passes token by token, in both ways."""
    import torch

    from leadline.models.inputs import random_tokens
    from leadline.parts.generation import Cache

    tokens = 10
    masked, open_ = (
        _stack(causal, depth=3, width=32, heads=4, context=tokens, seed=seed)
        for causal in ("true", "false")
    )
    ids = random_tokens(masked, examples=2, length=tokens, seed=seed).main
    with torch.no_grad():
        at_once = masked(ids)
        past = Cache(tokens)
        one_by_one = torch.cat([open_(ids[:, i : i + 1], cache=past) for i in range(tokens)], 1)
        anew = torch.cat([open_(ids[:, : i + 1])[:, -1:] for i in range(tokens)], 1)
        unmasked = open_(ids)
    return Measured(
        recomputed_difference=(anew - at_once).abs().max(),
        one_by_one_error=(one_by_one - at_once).abs().max(),
        open_difference=(unmasked - at_once).abs().max(),
    )


@measures("scaling-keeps-logits-level")
def scaling_keeps_logits_level(seed: int) -> Measured:
    """How products of drawn queries and keys grow from the narrowest to the widest of four heads."""
    head_widths, count = (16, 64, 256, 1024), 1024
    rng = np.random.default_rng([seed, 4001])
    spread: list[float] = []
    aligned: list[float] = []
    for width in head_widths:
        query, key = rng.standard_normal((2, count, width))
        spread.append(float((query @ key.T).std()))
        aligned.append(float(np.square(query).sum(1).mean()))
    root = np.sqrt(head_widths)
    scaled, along = np.array(spread) / root, np.array(aligned) / root
    return Measured(
        growth_scaled=scaled[-1] / scaled[0],
        growth_unscaled=spread[-1] / spread[0],
        growth_aligned=along[-1] / along[0],
        growth_aligned_by_root=along[-1] / along[0] / (root[-1] / root[0]),
        picture=Picture(
            "width of the head",
            "logit",
            {
                "spread, scaled": scaled,
                "spread, not scaled": spread,
                "key equal to the query, scaled": along,
            },
            over=head_widths,
            x_log=True,
            y_log=True,
        ),
    )


@measures("scaled-by-head-width")
def scaled_by_head_width(seed: int) -> Measured:
    """Read the scaling of a small GPT-2 and of Leadline's attention, beside both readings."""
    from leadline.models.inputs import random_tokens

    width, heads = 64, 4
    models = (
        hf_model("gpt2", n_embd=width, n_head=heads, n_layer=2, seed=seed),
        transformer(
            depth=1, width=width, heads=heads, vocabulary=100, context=16, init="xavier", seed=seed
        ),
    )
    as_written, by_head_width = [], []
    for model in models:
        ids = random_tokens(model, examples=2, length=12, seed=seed)
        scaling = float(attention_by_layer(model, ids, "scaling", seed=seed)[0])
        as_written.append(min(abs(scaling * math.sqrt(h) - 1) for h in range(1, heads + 1)))
        by_head_width.append(abs(scaling * math.sqrt(width // heads) - 1))
    return Measured(error_as_written=min(as_written), error_by_head_width=max(by_head_width))


@measures("larger-dot-product-better-aligned")
def larger_dot_product_better_aligned(seed: int) -> Measured:
    """How often product and cosine order two keys alike, before and after a norm on the keys."""
    import torch

    from leadline.parts.norms.layernorm import LayerNorm
    from leadline.parts.norms.rmsnorm import RMSNorm

    generator = torch.Generator().manual_seed(4400 + seed)
    with torch.no_grad():
        x = torch.randn(64, 64, generator=generator, dtype=torch.float64)
        tokens = LayerNorm(64).double()(x)
        weights = torch.randn(2, 64, 16, generator=generator, dtype=torch.float64) / 8
        query, key = tokens @ weights[0], tokens @ weights[1]
        normed = RMSNorm(16, eps=0.0).double()(key)
    return Measured(
        agreement=_agreement(query.numpy(), key.numpy()),
        agreement_normed=_agreement(query.numpy(), normed.numpy()),
    )


def _agreement(query: np.ndarray, key: np.ndarray) -> float:
    """The share of pairs of keys that product and cosine order alike."""
    product = query @ key.T
    cosine = product / np.linalg.norm(query, axis=1)[:, None] / np.linalg.norm(key, axis=1)
    i, j = np.triu_indices(len(key), 1)
    agree = (product[:, i] - product[:, j]) * (cosine[:, i] - cosine[:, j]) > 0
    return float(agree.mean())


@measures("key-bias-cancels")
def key_bias_cancels(seed: int) -> Measured:
    """Compare both sides of the formula in numpy, then heads with and without the keys' bias."""
    import torch

    from leadline.instruments.attacks.heads import KINDS, DrawnHeads

    rng = np.random.default_rng([seed, 4310])
    errors = []
    for _ in range(20):
        x, w_q, w_k = rng.standard_normal((8, 12)), *rng.standard_normal((2, 12, 4))
        b_q, b_k = rng.standard_normal((2, 4))
        whole = softmax((x @ w_q + b_q) @ (x @ w_k + b_k).T / 2)
        short = softmax((x @ (w_q @ w_k.T) @ x.T + np.ones((8, 1)) * (b_q @ w_k.T @ x.T)) / 2)
        errors.append(float(np.abs(whole - short).max()))
    changes = []
    for kind in ("open", "open-rotary"):
        heads = DrawnHeads(KINDS[kind], 50, 8, generator=torch.Generator().manual_seed(4311 + seed))
        before = heads.attention()[0].detach()
        heads.sizes["key_bias"] = torch.zeros_like(heads.sizes["key_bias"])
        changes.append(float((heads.attention()[0].detach() - before).abs().max()))
    return Measured(formula_error=max(errors), change_plain=changes[0], change_rotary=changes[1])


@measures("heads-are-a-sum")
def heads_are_a_sum(seed: int) -> Measured:
    """Leadline's attention against the sum over heads, without and with biases of the values."""
    import torch

    from leadline.numerics.reference import attention_weights
    from leadline.parts.branches import Run

    width, heads, tokens = 24, 3, 7
    size = width // heads
    model = transformer(
        depth=1, width=width, heads=heads, vocabulary=10, context=tokens, init="xavier", seed=seed
    )
    branch = branch_of(model, "attention")
    generator = torch.Generator().manual_seed(4300 + seed)
    x = torch.randn(1, tokens, width, generator=generator, dtype=torch.float64)
    errors: dict[str, float] = {}
    with torch.no_grad():
        biases = torch.randn(4 * width, generator=generator, dtype=torch.float64)
        branch.output.bias.copy_(biases[:width])
        for values in (False, True):
            branch.qkv.bias.copy_(biases[width:])
            if not values:
                branch.qkv.bias[2 * width :] = 0
            together = branch(x, Run(causal=True))[0]
            q, k, _ = (x[0] @ branch.qkv.weight.T + branch.qkv.bias).split(width, -1)
            total = torch.zeros(tokens, width, dtype=torch.float64) + branch.output.bias
            carried = torch.zeros(width, dtype=torch.float64)
            for head in range(heads):
                mine = slice(head * size, (head + 1) * size)
                pattern = attention_weights(q[:, mine], k[:, mine], scaling=size**-0.5, causal=True)
                value = branch.qkv.weight[2 * width :][mine].T
                out = branch.output.weight[:, mine].T
                total += pattern @ x[0] @ (value @ out)
                carried += branch.qkv.bias[2 * width :][mine] @ out
            if values:
                errors["error_value_bias"] = float((total - together).abs().max())
                errors["corrected_error"] = float((total + carried - together).abs().max())
            else:
                errors["sum_error"] = float((total - together).abs().max())
    return Measured(errors)


@measures("heads-beyond-one-average", needs=(TRAINED,))
def heads_beyond_one_average(seed: int, results: Results) -> Measured:
    """How far one head and two, set by hand, get from all averages; how trained heads differ."""
    import torch

    from leadline.parts.branches import Run

    sharp = 60.0
    # Four features: two values, which are read, and two marks by which a token is found.
    x = torch.tensor([[[0.0, 0, 1, 0], [1, 1, 0, 1]]], dtype=torch.float64)
    distances = []
    for heads in (1, 2):
        sizes = {"depth": 1, "width": 4, "heads": heads, "vocabulary": 2, "context": 2}
        model = transformer(**sizes, attention="multihead(causal=false)")
        branch = branch_of(model, "attention")
        with torch.no_grad():
            for weight in branch.parameters():
                weight.zero_()
            query, key, value = branch.qkv.weight.split(4)
            query[:, 2:] = sharp
            # With two heads of width 2, rows 0 and 1 are the first head's, 2 and 3 the second's.
            key[0, 2] = 1.0
            key[2 if heads == 2 else 1, 3 if heads == 2 else 2] = 1.0
            value[0, 0] = value[2 if heads == 2 else 1, 1] = 1.0
            branch.output.weight[0, 0] = branch.output.weight[1, 2 if heads == 2 else 1] = 1.0
            first = branch(x, Run())[0, 0, :2].numpy()
        values = x[0, :, :2].numpy()
        along = values[1] - values[0]
        share = float(np.clip((first - values[0]) @ along / (along @ along), 0, 1))
        distances.append(float(np.linalg.norm(first - values[0] - share * along)))
    return Measured(
        distance_one_head=distances[0],
        distance_two_heads=distances[1],
        divergence=np.mean(results[TRAINED.name]["pre"]["head_divergence"]),
    )


@measures("heads-learn-different-ranges", needs=(TRAINED,))
def heads_learn_different_ranges(seed: int, results: Results) -> Measured:
    """Compare the mean attention distances of all heads, trained and untrained."""
    from leadline.reading.bounds.attention_facts import attention_sublayers, head_readings

    trained = results[TRAINED.name]
    tokens = trained["tokens"]
    pre, post = (np.array(trained[name]["distance_by_head"]) for name in ("pre", "post"))
    model = transformer(depth=6, width=64, heads=4, vocabulary=256, context=128, seed=seed)
    record = attention_record(model, text_windows(seed, length=tokens, examples=4), seed=seed)
    readings = head_readings(record, "attention.distance", "mean")
    start = np.array(
        [
            [readings.at(layer.address, head)[0].value for head in layer.head_numbers]
            for layer in attention_sublayers(record)
        ]
    )
    return Measured(
        range_ratio_pre=pre.max() / pre.min(),
        range_ratio_post=post.max() / post.min(),
        range_ratio_start=start.max() / start.min(),
        start_over_even=float(start.mean()) / ((tokens - 1) / 4),
        ratio_in_layer=np.median(pre.max(1) / pre.min(1)),
        ratio_of_layers=pre.mean(1).max() / pre.mean(1).min(),
        picture=Picture(
            "layer",
            "mean attention distance, tokens",
            {
                **{f"head {head + 1}": pre[:, head] for head in range(4)},
                "before training": start.mean(1),
            },
            over=1,
            faint=("before training",),
        ),
    )
