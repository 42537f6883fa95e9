"""Records made by formula, with the shape of real ones: no model, no torch.

`gpt2_record` looks like a pre-norm decoder whose first token carries a massive activation,
`t5_record` like an encoder-decoder, `broken_record` like a model whose numbers stop being finite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from leadline.record import Finding, Quantity, Reading, Record, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUANTITIES = (
    Quantity(
        "stream.norm",
        "Norm of the stream",
        "‖x_l‖",
        "sqrt(sum_i x_i^2)",
        high="The stream outgrows the updates: later layers change little.",
        low="The stream shrinks towards zero.",
        source="Xiong et al. 2020",
        scale="log",
    ),
    Quantity(
        "stream.variance",
        "Variance of the stream",
        "Var x_l",
        "mean_i (x_i - mean_i x_i)^2",
        high="Later layers write onto a large signal.",
        low="The signal dies out.",
        scale="log",
    ),
    Quantity(
        "tokens.residual",
        "Token residual, relative",
        "r_l",
        "||X - 1 mean(X)||_F / ||X||_F",
        high="Tokens stay apart.",
        low="Tokens collapse into one: rank collapse.",
        source="Dong et al. 2021",
        headline="value",
    ),
    Quantity(
        "tokens.cosine",
        "Cosine between tokens",
        "cos",
        "mean over pairs of <x_s, x_t> / (|x_s| |x_t|)",
        high="Tokens point the same way.",
        low="Tokens point in different ways.",
        headline="value",
    ),
    Quantity(
        "update.norm",
        "Norm of the update",
        "‖u‖",
        "sqrt(sum_i u_i^2)",
        lives_on="sublayer",
        high="The branch writes much.",
        low="The branch writes little.",
        scale="log",
    ),
    Quantity(
        "update.ratio",
        "Update against stream",
        "‖u‖ / ‖x‖",
        "|u| / |x| before the write",
        lives_on="sublayer",
        high="Each write turns the stream.",
        low="The write is lost in the stream.",
        scale="log",
    ),
    Quantity(
        "gradient.stream",
        "Gradient at the stream",
        "‖dL/dx_l‖",
        "sqrt(sum_i (dL/dx_i)^2)",
        high="Gradients explode towards the input.",
        low="Gradients vanish towards the input.",
        scale="log",
        headline="value",
    ),
    Quantity(
        "block.influence",
        "Block influence",
        "1 - cos",
        "1 - mean cos(x_{l-1}, x_l)",
        lives_on="layer",
        high="The block turns the stream.",
        low="The block could be dropped.",
        source="Men et al. 2024",
    ),
)

STATISTICS = ("mean", "median", "mean_without_first", "median_without_first")


def gpt2_record(
    *, depth: int = 12, seed: int = 0, name: str = "gpt2", massive: bool = True
) -> Record:
    """A pre-norm decoder: the norm grows as a power of l, the gradient by a factor per layer."""
    record = Record()
    _describe(record)
    record.append(_decoder_readings(depth, seed=seed, massive=massive))
    _note_gpt2(record, depth=depth, seed=seed, name=name)
    if massive:
        record.add_finding(
            Finding(
                "The first token carries a norm 900 times that of the others from layer 3 on.",
                "stream.norm",
                Site("decoder", 3),
            )
        )
    return record


def t5_record(*, depth: int = 6, seed: int = 0) -> Record:
    """An encoder of `depth` layers and a decoder of twice as many, with cross-attention."""
    record = Record()
    _describe(record)
    rng = np.random.default_rng(seed)
    for stack, blocks, roles in (
        ("encoder", depth, ("attention", "mlp")),
        ("decoder", 2 * depth, ("attention", "cross-attention", "mlp")),
    ):
        record.append(
            Reading("stream.norm", Site(stack, l), "mean", float(4 + 2 * l + rng.random() / 10))
            for l in range(blocks + 1)
        )
        record.append(
            Reading("update.norm", Site(stack, l, s, role), "mean", float(s * 1.1**l))
            for l in range(1, blocks + 1)
            for s, role in enumerate(roles, start=1)
        )
    record.note("model", {"name": "t5", "class": "T5ForConditionalGeneration", "parameters": 60000})
    record.note(
        "anatomy",
        {
            "source": "discovery",
            "stacks": {
                "encoder": {"depth": depth, "width": 64, "lanes": 1},
                "decoder": {"depth": 2 * depth, "width": 64, "lanes": 1},
            },
            "depth": 3 * depth,
            "sublayers": 2 * depth + 6 * depth,
            "balance_eps": 0.37,
        },
    )
    return record


def broken_record(*, depth: int = 12, first_bad: int = 5) -> Record:
    """A decoder whose stream overflows at `first_bad` and is NaN afterwards."""
    record = Record()
    _describe(record)
    values = [2.0 ** (10 * l) for l in range(first_bad)] + [math.inf]
    values += [math.nan] * (depth - first_bad)
    record.append(
        Reading("stream.norm", Site("decoder", l), "mean", value) for l, value in enumerate(values)
    )
    record.note("model", {"name": "broken", "class": "Broken", "parameters": 10})
    record.note("loss", {"kind": "next-token", "value": math.nan, "seed": 0})
    record.add_finding(
        Finding(
            f"The stream is not finite from layer {first_bad} on.",
            "stream.norm",
            Site("decoder", first_bad),
            "serious",
        )
    )
    return record


def _describe(record: Record) -> None:
    for quantity in QUANTITIES:
        record.describe(quantity)


def _decoder_readings(depth: int, *, seed: int, massive: bool) -> Iterator[Reading]:
    rng = np.random.default_rng(seed)

    def near(value: float) -> float:
        return float(value * np.exp(rng.normal(0.0, 0.02)))

    def tokenwise(
        quantity: str, site: Site, value: float, *, heavy: float = 1.0
    ) -> Iterator[Reading]:
        # 128 tokens, of which the first is `heavy` times the others
        share = (127 + heavy) / 128
        levels = (value * share, value, value, 0.98 * value)
        for statistic, level in zip(STATISTICS, levels, strict=True):
            yield Reading(quantity, site, statistic, level, seed=seed)

    def heavy(l: int) -> float:
        return 900.0 if massive and 3 <= l < depth else 1.0

    for l in range(depth + 1):
        stream = Site("decoder", l)
        norm = near(4.0 if l == 0 else 12.0 * l**0.55)
        yield from tokenwise("stream.norm", stream, norm, heavy=heavy(l))
        yield from tokenwise("stream.variance", stream, norm**2 / 768, heavy=heavy(l) ** 2)
        yield Reading("tokens.residual", stream, "value", near(0.95 - 0.02 * l), seed=seed)
        yield Reading("tokens.cosine", stream, "value", near(0.10 + 0.02 * l), seed=seed)
        yield Reading("gradient.stream", stream, "value", near(0.02 * 0.9**l), seed=seed)
        if l:
            inside = Site("decoder", l, 1)
            yield from tokenwise("stream.norm", inside, near(12.0 * (l - 0.5) ** 0.55))
            for sublayer, role, size in ((1, "attention", 5.0), (2, "mlp", 8.0)):
                write = Site("decoder", l, sublayer, role)
                update = near(size)
                yield from tokenwise("update.norm", write, update)
                yield from tokenwise("update.ratio", write, update / norm)
            block = Site("decoder", l, None, "block")
            yield from tokenwise("block.influence", block, near(0.3 / l))


def _note_gpt2(record: Record, *, depth: int, seed: int, name: str) -> None:
    notes: dict[str, object] = {
        "model": {
            "name": name,
            "class": "GPT2LMHeadModel",
            "parameters": 124_439_808,
            "dtype": "float32",
            "device": "cpu",
            "source": "random init",
            "mode": "eval",
        },
        "anatomy": {
            "source": "discovery",
            "depth": depth,
            "layers": [_block(l) for l in range(1, depth + 1)],
            "stacks": {
                "decoder": {
                    "depth": depth,
                    "width": 768,
                    "lanes": 1,
                    "causal": True,
                    "shared": False,
                }
            },
            "sublayers": 2 * depth,
            "remarks": [],
            "balance_eps": 0.42,
            "balance_worst": {"layer": depth, "stack": "decoder"},
            "balance_dtype": "float32",
            "balance_judged": depth,
            "balance_unjudged": [],
            "balance_faintest_update_eps": 9.7e5,
        },
        "input": {
            "kind": "random tokens",
            "examples": 4,
            "tokens": 512,
            "longest": 128,
            "padded": 0,
            "digest": "9f2c41d07a5be8836d10",
            "seed": seed,
            "text_preview": "",
        },
        "loss": {"kind": "next-token", "value": 10.9347, "seed": seed, "reason": "its head"},
        "passes": {"forward": 1, "backward": 1, "anatomy_forward": 6},
        "coverage": {"measured": [quantity.name for quantity in QUANTITIES], "refused": []},
        "versions": {"leadline": "0.1.0", "python": "3.11.2", "numpy": "2.4.6"},
        "time": "2026-01-02T03:04:05+00:00",
        "seconds": 1.83,
        "probes": ["stream", "tokens", "update", "gradient", "block"],
    }
    for key, value in notes.items():
        record.note(key, value)


def _block(layer: int) -> dict[str, object]:
    return {
        "stack": "decoder",
        "layer": layer,
        "module": f"transformer.h.{layer - 1}",
        "placement": "pre",
        "parallel": False,
        "opening": None,
        "sublayers": [
            {
                "sublayer": sublayer,
                "role": role,
                "module": f"transformer.h.{layer - 1}.{child}",
                "gain": 1.0,
                "keep": 1.0,
                "settle": None,
                "parallel": False,
                "placement": "pre",
                "law": None,
            }
            for sublayer, role, child in ((1, "attention", "attn"), (2, "mlp", "mlp"))
        ],
    }


RECORDS: dict[str, Callable[[], Record]] = {
    "gpt2": gpt2_record,
    "t5": t5_record,
    "broken": broken_record,
}
