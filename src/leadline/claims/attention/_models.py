"""Small random models of Hugging Face, and the branches of Leadline's own.

Nothing here touches the global random numbers.
"""

from __future__ import annotations

from typing import Any

__all__ = ["branch_of", "hf_configuration", "hf_model"]

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {
        "n_embd": 32,
        "n_head": 4,
        "n_layer": 2,
        "n_positions": 32,
        "vocab_size": 100,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    "openai-gpt": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 32, "vocab_size": 100},
    "bert": {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "vocab_size": 100,
    },
}


def hf_configuration(family: str, **fields: Any) -> Any:
    """The configuration that a family starts from, with some fields changed."""
    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    return transformers.AutoConfig.for_model(family, **fields)


def hf_model(family: str, *, seed: int, **fields: Any) -> Any:
    """A small random model of a family, in evaluation mode and float32."""
    import torch

    from leadline.errors import require

    transformers: Any = require("transformers", extra="hf")
    configuration = hf_configuration(family, **(SMALL[family] | fields))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return transformers.AutoModel.from_config(configuration).eval()


def branch_of(model: Any, branch: str, *, layer: int = 1) -> Any:
    """The attention or the MLP of one layer of Leadline's Transformer, in float64."""
    return getattr(model.blocks[layer - 1], branch).branch.double()
