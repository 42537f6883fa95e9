"""Streams of several lanes: DeepSeek-V4, GLM-5, HY-V4 and Qwen-4 style hyper-connections.

    x' [lane k] = sum_j comb[j, k] x[lane j] + post[k] u        (DeepSeek-V4, GLM-5)
    x' [lane k] = x[lane k] + post[k] u                         (HY-V4: no mixing; Qwen-4)

`post` and `comb` are what the connection's module returned for this token; u is what the branch
returned. The transposed use of `comb` follows the released code (arXiv 2512.24880 writes H_res).
Qwen-4 keeps its lanes side by side in one wide last axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from leadline.anatomy.families.family import FAMILIES, blocks_in, parameters_under
from leadline.anatomy.structure import Stack, Sublayer

Tensor = torch.Tensor


@dataclass(frozen=True)
class Mixed:
    """comb' x + post u, with (post, comb, read) returned by the connection's module."""

    watches: tuple[str, ...]
    formula: str = "comb' x + post u"

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        post, comb, _ = _parts(watched[self.watches[0]])
        kept = torch.matmul(comb.to(before.dtype).transpose(-1, -2), before)
        return kept, post.to(before.dtype).unsqueeze(-1) * returned.unsqueeze(-2)


@dataclass(frozen=True)
class Unmixed:
    """x + post u in float32: lanes do not mix. The connection's module returns (post, read)."""

    watches: tuple[str, ...]
    formula: str = "x + post u"

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        post, *_ = _parts(watched[self.watches[0]])
        return before.float(), post.float().unsqueeze(-1) * returned.float().unsqueeze(-2)


@dataclass(frozen=True)
class Injected:
    """x + inject u on lanes side by side, with (read, x, inject) from the connection's module."""

    watches: tuple[str, ...]
    formula: str = "x + inject u"

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        _, _, inject = _parts(watched[self.watches[0]])
        return before, (returned.unsqueeze(-2) * inject.unsqueeze(-1)).flatten(-2)


def _parts(output: object) -> Any:
    assert isinstance(output, (tuple, list))
    return output


def _pair(model: nn.Module, path: str, law: type[Mixed] | type[Unmixed]) -> tuple[Sublayer, ...]:
    attention, mlp = f"{path}.self_attn", f"{path}.mlp"
    return (
        Sublayer(
            1,
            "attention",
            attention,
            placement="pre",
            law=law((f"{path}.attn_hc",)),
            parameters=parameters_under(
                model, f"{path}.attn_hc", f"{path}.input_layernorm", attention
            ),
        ),
        Sublayer(
            2,
            "mlp",
            mlp,
            placement="pre",
            law=law((f"{path}.ffn_hc",)),
            parameters=parameters_under(
                model, f"{path}.ffn_hc", f"{path}.post_attention_layernorm", mlp
            ),
        ),
    )


def _laned(
    model: nn.Module, class_name: str, law: type[Mixed] | type[Unmixed]
) -> list[Stack] | None:
    blocks = blocks_in(model, class_name, lambda path: _pair(model, path, law))
    if not blocks:
        return None
    first = blocks[0].module
    width = int(model.get_parameter(f"{first}.input_layernorm.weight").numel())
    lanes = int(getattr(model.get_submodule(f"{first}.attn_hc"), "hc_mult"))  # noqa: B009
    return [Stack("decoder", blocks, width, lanes=lanes, causal=True)]


@FAMILIES.register("deepseek_v4")
def deepseek_v4(model: nn.Module) -> list[Stack] | None:
    """Manifold-constrained hyper-connections: a doubly stochastic mix of the lanes."""
    return _laned(model, "DeepseekV4DecoderLayer", Mixed)


@FAMILIES.register("glm5_next_text")
@FAMILIES.register("glm5_next")
def glm5_next(model: nn.Module) -> list[Stack] | None:
    """Manifold-constrained hyper-connections, as in DeepSeek-V4."""
    return _laned(model, "Glm5NextTextDecoderLayer", Mixed)


@FAMILIES.register("hy_v4")
def hy_v4(model: nn.Module) -> list[Stack] | None:
    """Hyper-connections without mixing: every lane keeps itself."""
    return _laned(model, "HYV4DecoderLayer", Unmixed)


@FAMILIES.register("qwen4_exp_text")
@FAMILIES.register("qwen4_exp")
def qwen4_exp(model: nn.Module) -> list[Stack] | None:
    """Gated reads, injected writes; layers with a per-layer embedding have a third write."""
    blocks = blocks_in(model, "Qwen4ExpTextDecoderLayer", lambda path: _injected(model, path))
    if not blocks:
        return None
    connection = model.get_submodule(f"{blocks[0].module}.attn_hyper_connection")
    lanes = int(getattr(connection, "hc_count"))  # noqa: B009
    width = int(getattr(connection, "hidden_size"))  # noqa: B009
    return [Stack("decoder", blocks, width, lanes=lanes, causal=True)]


def _injected(model: nn.Module, path: str) -> tuple[Sublayer, ...]:
    block = model.get_submodule(path)
    name = "linear_attn" if hasattr(block, "linear_attn") else "self_attn"
    sublayers: list[Sublayer] = []
    if getattr(block, "ple", None) is not None:
        sublayers.append(
            Sublayer(1, "branch", f"{path}.ple", parameters=parameters_under(model, f"{path}.ple"))
        )
    for role, module, gate in (
        ("attention", name, "attn_hyper_connection"),
        ("mlp", "mlp", "mlp_hyper_connection"),
    ):
        sublayers.append(
            Sublayer(
                len(sublayers) + 1,
                role,
                f"{path}.{module}",
                placement="pre",
                law=Injected((f"{path}.{gate}",)),
                parameters=parameters_under(model, f"{path}.{gate}", f"{path}.{module}"),
            )
        )
    return tuple(sublayers)
