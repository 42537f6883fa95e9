"""Whether a model is meant to be causal, by everything but its own masks: names, settings, buffers.

What the masks do cannot say what they should do. So the class and the configuration are asked, and
masks that lie in a module without being used.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from leadline.anatomy import configured_model
from leadline.models.inputs.model_facts import is_pair, text_configuration

__all__ = [
    "causal_reasons",
    "dropouts",
    "from_library",
    "is_of_positions",
    "position_parts",
    "takes_tokens_first",
    "windows",
]

_CAUSAL = re.compile(r"causal|gpt|autoregress", re.IGNORECASE)
_NOT_CAUSAL = re.compile(r"non_?causal|bidirection|prefix|gptsan|xlnet|xlm|conv", re.IGNORECASE)
_WINDOW = re.compile(
    r"window|chunk|block_size|local|band|stride|bucket_size|max_span", re.IGNORECASE
)
_POSITIONS = re.compile(
    r"(^|[._])(pos|wpe|position\w*|pos_\w+|pe|rope|rotary\w*|inv_freq|freqs\w*|alibi\w*|relative_\w*)"
    r"($|[._])|pos_?(emb|enc)|position(al)?_?(emb|enc)",
    re.IGNORECASE,
)
LIBRARIES = ("transformers.", "leadline.", "torch.", "diffusers.", "timm.", "peft.")
MOST_BUFFER = 4096
"""Larger square buffers are not looked at for a triangle."""


def causal_reasons(model: nn.Module) -> list[str]:
    """Why outputs must not depend on later tokens; none where nothing says so."""
    inner: Any = configured_model(model)
    config: Any = text_configuration(model)
    if _says_both_ways(config) or _NOT_CAUSAL.search(type(inner).__name__):
        return []
    reasons: list[str] = []
    # A nested configuration of the text says what it can be, not what the model makes of it (BLIP).
    if getattr(config, "is_decoder", None) is True and config is getattr(inner, "config", None):
        reasons.append("its configuration says is_decoder=True")
    if is_pair(model):
        reasons.append("it is the decoder of an encoder with a decoder")
    name = type(inner).__name__
    if _CAUSAL.search(name) or name.endswith("LMHeadModel"):
        reasons.append(f"its class is called {name}")
    if reasons or from_library(model):
        # Classes of a library serve several uses: BertSelfAttention, CausalConv of an audio codec.
        return reasons
    parts = {type(part).__name__ for part in inner.modules()}
    named = sorted(p for p in parts if _CAUSAL.search(p) and not _NOT_CAUSAL.search(p))
    if named:
        reasons.append(f"it has parts of the class {named[0]}")
    if triangle := _triangle(inner):
        reasons.append(f"it keeps the triangular mask {triangle}")
    return reasons


def _says_both_ways(config: Any) -> bool:
    return (
        getattr(config, "use_bidirectional_attention", None) not in (None, False)
        or getattr(config, "is_causal", None) is False
        or getattr(config, "causal", None) is False
        or getattr(config, "bidirectional", None) is True
    )


def _triangle(model: nn.Module) -> str | None:
    """The first buffer that is a triangular mask."""
    for name, buffer in model.named_buffers():
        flat = buffer.squeeze()
        if flat.ndim != 2 or flat.shape[0] != flat.shape[1] or not 2 < flat.shape[0] <= MOST_BUFFER:
            continue
        part = flat[:16, :16]
        below = part.new_ones(part.shape, dtype=torch.bool).tril()
        shown, hidden = part[below], part[~below]
        even = bool((shown == shown[0]).all()) and bool((hidden == hidden[0]).all())
        if even and bool(shown[0] != hidden[0]):
            return name
    return None


def from_library(model: nn.Module) -> bool:
    """Whether the class comes from a library, whose own choices are taken for meant."""
    module = type(configured_model(model)).__module__
    return module.startswith(LIBRARIES) and not module.startswith("leadline.testing")


def windows(model: nn.Module) -> dict[str, int]:
    """The settings that may limit how far a token sees, by name."""
    config: Any = text_configuration(model)
    values: dict[str, Any] = dict(vars(config)) if hasattr(config, "__dict__") else {}
    return {
        name: value
        for name, value in values.items()
        if _WINDOW.search(name) and isinstance(value, int) and not isinstance(value, bool)
    }


def is_of_positions(path: str) -> bool:
    """Whether a path names something that has to do with positions."""
    return bool(_POSITIONS.search(path))


def position_parts(model: nn.Module) -> list[str]:
    """The paths of the outermost modules, weights and buffers that are named after positions."""
    names = [name for name, _ in model.named_modules() if name]
    names += [name for name, _ in model.named_parameters()]
    names += [name for name, _ in model.named_buffers() if not name.endswith("position_ids")]
    parts: list[str] = []
    for name in sorted(names, key=len):
        if is_of_positions(name) and not any(name.startswith(f"{part}.") for part in parts):
            parts.append(name)
    return parts[:8]


def takes_tokens_first(model: nn.Module) -> bool:
    """Whether this is a module of torch itself whose inputs are [token, example, width]."""
    inner = configured_model(model)
    return type(inner).__module__.startswith("torch.nn") and any(
        getattr(part, "batch_first", True) is False for part in inner.modules()
    )


def dropouts(model: nn.Module) -> list[str]:
    """The paths of the dropouts that are on as the model stands: checks see it in evaluation mode."""
    return [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
    ]
