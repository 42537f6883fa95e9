"""GGUF files tensor by tensor: the names and layouts of transformers, one tensor in memory at a time.

transformers dequantises a whole file into memory and then fills the model. Here each tensor goes the
same way, by the same functions, and into a file of its own (`scratch`) before the next one is read.
What transformers merges from several tensors (experts) is merged in that file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leadline.errors import LoadingError, require
from leadline.models.streaming.scratch import Scratch

__all__ = ["dequantised_bytes", "dequantised_model"]


def dequantised_bytes(files: Sequence[Path], dtype: torch.dtype | None) -> int:
    """The bytes of the weights of files once they are dequantised."""
    width = (dtype or torch.float32).itemsize
    tensors = [tensor for file in files for tensor in _reader(file).tensors]
    return sum(math.prod(int(n) for n in tensor.shape) for tensor in tensors) * width


def dequantised_model(
    path: Path, model_class: Any, config: Any, dtype: torch.dtype | None, scratch: Scratch
) -> dict[str, torch.Tensor]:
    """The weights of a file by the names of the model, each in a file of its own."""
    gguf = require("gguf", extra="gguf")
    conversion: Any = require("transformers.modeling_gguf_pytorch_utils", extra="hf")
    scratch.expect(dequantised_bytes([path], dtype))
    reader = _reader(path)
    architecture = conversion.read_field(reader, "general.architecture")[0]
    with torch.device("meta"):
        skeleton = model_class(config)
    parsed = conversion.load_gguf_checkpoint(str(path))
    parsed["tensors"] = tensors = {}
    kind = conversion.TENSOR_PROCESSORS.get(architecture, conversion.TensorProcessor)
    processor = kind(config=parsed.get("config", {}))
    names = conversion.get_gguf_hf_weights_map(skeleton, processor)
    kept: set[str] = set()
    for stored in reader.tensors:
        try:
            values = gguf.dequantize(stored.data, stored.tensor_type)
        except NotImplementedError as error:
            raise LoadingError(
                f"{path} holds {stored.name} quantised as {stored.tensor_type.name}, which the "
                "package gguf cannot dequantise; use a file of another quantisation."
            ) from error
        result = processor.process(
            weights=values, name=stored.name, tensor_key_mapping=names, parsed_parameters=parsed
        )
        if result.name in names:
            values = torch.from_numpy(np.ascontiguousarray(result.weights))
            tensors[names[result.name]] = values if dtype is None else values.to(dtype)
        for name in tensors.keys() - kept:  # among them what the processor has put there itself
            tensors[name] = scratch.keep(tensors[name])
            kept.add(name)
    return tensors


def _reader(path: Path) -> Any:
    gguf = require("gguf", extra="gguf")
    try:
        return gguf.GGUFReader(str(path))
    except Exception as error:
        raise LoadingError(
            f"The GGUF file {path} cannot be read: {error} It may be cut short."
        ) from error
