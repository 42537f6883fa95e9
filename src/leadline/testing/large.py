"""Write a checkpoint that is larger than memory: random weights, one shard at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from leadline.errors import require
from leadline.models.streaming.cost import LlamaSize

__all__ = ["write_llama"]


def write_llama(
    folder: Path,
    size: LlamaSize,
    *,
    dtype: torch.dtype = torch.float32,
    shard_bytes: int = 2**28,
    heads: int = 16,
) -> int:
    """Write a Llama of this size into the folder and return the bytes of its weights.

    No more than a shard is in memory.
    """
    transformers: Any = require("transformers", extra="hf")
    torch_files: Any = require("safetensors.torch", extra="hf")
    config = transformers.LlamaConfig(
        num_hidden_layers=size.layers,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_attention_heads=heads,
        num_key_value_heads=heads * size.key_width // size.width,
        vocab_size=size.vocabulary,
        architectures=["LlamaForCausalLM"],
        dtype=dtype,
    )
    with torch.device("meta"):
        skeleton = transformers.LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    places: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    total = held = 0
    names = [name for name, _ in skeleton.named_parameters()]
    for name, parameter in skeleton.named_parameters():
        values = torch.ones(parameter.shape)
        if parameter.ndim > 1:
            values.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)
        shard[name] = values.to(dtype)
        held += shard[name].nbytes
        if held >= shard_bytes or name == names[-1]:
            file = f"part-{len(set(places.values())) + 1:03}.safetensors"
            torch_files.save_file(shard, folder / file, metadata={"format": "pt"})
            places |= dict.fromkeys(shard, file)
            total, held, shard = total + held, 0, {}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return total
