"""What the tests of gates, lanes and history share: places, random numbers, tiny models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from leadline.parts import Transformer
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.place import Place

WIDTH = 5
EXAMPLES, TOKENS = 2, 3

Array = np.ndarray[Any, Any]


def place(layer: int = 1, sublayer: int = 1, **fields: Any) -> Place:
    fields = {"width": WIDTH, "heads": 1, "depth": 4, **fields}
    return Place(layer=layer, sublayer=sublayer, **fields)


def built(choice: str, where: Place | None = None) -> Any:
    """A connection in float64, as it starts."""
    torch.manual_seed(0)
    return CONNECTIONS.build(choice, place=where or place()).double()


def stirred(module: nn.Module, *, by: float = 0.7, seed: int = 1) -> Any:
    """The module with noise added to all of its parameters: zeros and ones hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((by * noise).to(parameter.dtype))
    return module


def streams(count: int, *, seed: int = 2) -> list[Tensor]:
    """Independent random streams [example, token, width]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, EXAMPLES, TOKENS, WIDTH)
    return list(torch.randn(shape, generator=generator, dtype=torch.float64))


def lanes(count: int, *, seed: int = 3) -> Tensor:
    """Random lanes [example, token, lane, width], all different."""
    generator = torch.Generator().manual_seed(seed)
    shape = (EXAMPLES, TOKENS, count, WIDTH)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def array(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def sigmoid(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def same(found: Tensor, expected: Array, *, tolerance: float = 1e-12) -> bool:
    return found.shape == expected.shape and np.allclose(
        array(found), expected, rtol=tolerance, atol=tolerance
    )


def stack(choice: str, *, depth: int = 4, sublayers: int = 2, stir: bool = True) -> list[Any]:
    """The connections of a whole stack, in the order of their writes."""
    found: list[Connection] = []
    for layer in range(1, depth + 1):
        for sublayer in range(1, sublayers + 1):
            where = place(layer, sublayer, depth=depth, sublayers=sublayers)
            connection = built(choice, where)
            found.append(stirred(connection, seed=where.write) if stir else connection)
    return found


def model(
    connection: str, placement: str = "pre", *, stir: bool = False, seed: int = 0, **fields: Any
) -> Transformer:
    """A tiny model; `stir` moves the parameters of its connections alone."""
    built_model = Transformer(
        connection=connection,
        placement=placement,
        seed=seed,
        **{"depth": 3, "width": 16, "heads": 2, "vocabulary": 32, "context": 12, **fields},
    ).eval()
    if stir:
        for number, sublayer in enumerate(built_model.sublayers()):
            stirred(sublayer.connection, by=0.3, seed=number)
    return built_model
