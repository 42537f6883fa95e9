"""Fresh hosts that are trained: other architectures, widths, depths and seeds of weights and text.

`kept_model` trains once, on text of the task of the first round, and keeps the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.testing.faults.fresh.rounds import AGAIN
from leadline.testing.faults.hosts.building import build_hf, build_plain, build_recipe
from leadline.testing.faults.hosts.trained import TrainingCourse, kept_model

if TYPE_CHECKING:
    from torch import nn

__all__ = ["fresh_trained_model"]

_COURSE = TrainingCourse(steps=500, rate=3e-3, warmup=40)
# A post-norm model needs a longer warm-up: with the course of the others its loss on new text came
# to 2.90, hardly below the entropy of single bytes, 3.03; with this one it came to 2.29.
_POST = TrainingCourse(steps=550, rate=2e-3, warmup=150)
_DEPTHS = {"depth", "n_layer", "n_layers", "num_hidden_layers"}
_GROUPED = "multihead(bias=false, groups=2)"

# Host without "trained-" -> the seed of its weights, that of its text, its sizes.
_SETTINGS: Mapping[str, tuple[int, int, Mapping[str, Any]]] = {
    "gpt_bigcode": (
        11,
        1,
        {"vocab_size": 256, "n_embd": 64, "n_layer": 5, "n_head": 4, "initializer_range": 0.03}
        | {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0},
    ),
    "plain-gpt": (12, 2, {"vocab_size": 256, "depth": 6, "width": 72, "n_head": 6}),
    "smollm3": (
        13,
        3,
        {"vocab_size": 256, "num_hidden_layers": 5, "hidden_size": 72, "intermediate_size": 160}
        | {"num_attention_heads": 6, "num_key_value_heads": 3},
    ),
    "seed_oss": (
        14,
        4,
        {"vocab_size": 256, "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 144}
        | {"head_dim": 16},
    ),
    "plain-llama": (15, 5, {"vocab_size": 256, "n_layers": 5, "dim": 80, "n_heads": 5}),
    "recipe-rotary": (
        16,
        6,
        {"depth": 6, "width": 64, "heads": 8, "vocabulary": 256, "norm": "rmsnorm"}
        | {"positions": "rotary", "mlp": "swiglu", "attention": _GROUPED},
    ),
    "recipe-post": (
        17,
        7,
        {"depth": 4, "width": 72, "heads": 6, "vocabulary": 256, "placement": "post"},
    ),
    "recipe-sandwich": (
        18,
        8,
        {"depth": 5, "width": 64, "heads": 2, "vocabulary": 256, "placement": "sandwich"},
    ),
}


def fresh_trained_model(name: str) -> nn.Module:
    """The trained model of this name, from the cache or trained now.

    With `again-` before it: one layer more, other weights to start from, other text.
    """
    facts: list[Any] = [f"fresh {name}"]
    is_again, name = name.startswith(AGAIN), name.removeprefix(AGAIN)
    seed, text, sizes = _SETTINGS[name]
    if is_again:
        seed, text = seed + 20, text + 20
        sizes = {key: value + 1 if key in _DEPTHS else value for key, value in sizes.items()}
    if name.startswith("recipe"):
        model = build_recipe(sizes, seed)
    elif name.startswith("plain"):
        model = build_plain(name, seed, **sizes)
    else:
        model = build_hf(name, seed, **sizes)
    facts += [seed, text, dict(sizes)]
    course = _POST if name == "recipe-post" else _COURSE
    kept = f"fresh-{AGAIN if is_again else ''}{name}"
    return kept_model(model, kept, course, facts, seed=text)
