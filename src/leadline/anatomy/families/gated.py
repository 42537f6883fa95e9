"""Writes that weigh every feature on its own: Muse Spark, Zaya, Doge.

    x' = alpha x + beta u,  beta = sigmoid(g / T),  alpha = sqrt(max((1 - beta)(1 + beta), eps))
                                                                    (Muse Spark: alpha^2 + beta^2 = 1)
    x' = r (x + r_b) + s (u + s_b)                                  (Zaya)
    x' = r x + u                                                    (Doge)

g, r, r_b, s, s_b are parameter vectors of the block.
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
class VarianceKeeping:
    """alpha x + beta u with alpha^2 + beta^2 = 1."""

    gate: Tensor
    temperature: float
    eps: float
    watches: tuple[str, ...] = ()
    formula: str = "sqrt(1 - b^2) x + b u"

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        beta = torch.sigmoid(self.gate / self.temperature)
        # 1 - sigmoid(w) is written sigmoid(-w), which keeps its digits for large w.
        rest = torch.sigmoid(-self.gate / self.temperature)
        alpha = torch.sqrt(torch.clamp(rest * (1.0 + beta), min=self.eps))
        return alpha * before, beta * returned


@dataclass(frozen=True)
class Affine:
    """r (x + r_b) + s (u + s_b), feature by feature."""

    keep: Tensor
    keep_bias: Tensor | None = None
    gain: Tensor | None = None
    gain_bias: Tensor | None = None
    watches: tuple[str, ...] = ()
    formula: str = "r (x + r_b) + s (u + s_b)"

    def __call__(
        self, before: Tensor, returned: Tensor, watched: Mapping[Any, object]
    ) -> tuple[Tensor, Tensor]:
        kept = before if self.keep_bias is None else before + self.keep_bias
        update = returned if self.gain_bias is None else returned + self.gain_bias
        return kept * self.keep, update if self.gain is None else update * self.gain


def _stack(model: nn.Module, class_name: str, write: object) -> list[Stack] | None:
    blocks = blocks_in(model, class_name, write)  # pyright: ignore[reportArgumentType]
    if not blocks:
        return None
    width = int(model.get_parameter(f"{blocks[0].module}.input_layernorm.weight").numel())
    return [Stack("decoder", blocks, width, causal=True)]


@FAMILIES.register("muse_spark_text")
@FAMILIES.register("muse_spark")
def muse_spark(model: nn.Module) -> list[Stack] | None:
    """A learned gate per feature that keeps the variance, around sandwich norms."""

    def write(path: str) -> tuple[Sublayer, ...]:
        def law(name: str) -> VarianceKeeping:
            gate = model.get_submodule(f"{path}.{name}")
            return VarianceKeeping(
                model.get_parameter(f"{path}.{name}.gate").detach(),
                float(getattr(gate, "temperature")),  # noqa: B009
                float(getattr(gate, "eps")),  # noqa: B009
            )

        first, second = "post_attention_residual_gate", "post_feedforward_residual_gate"
        inside = ("input_layernorm", "self_attn", "post_attention_layernorm", first)
        outside = ("pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm", second)
        return (
            Sublayer(
                1,
                "attention",
                f"{path}.post_attention_layernorm",
                placement="sandwich",
                law=law(first),
                parameters=parameters_under(model, *(f"{path}.{n}" for n in inside)),
            ),
            Sublayer(
                2,
                "mlp",
                f"{path}.post_feedforward_layernorm",
                placement="sandwich",
                law=law(second),
                parameters=parameters_under(model, *(f"{path}.{n}" for n in outside)),
            ),
        )

    return _stack(model, "MuseSparkTextDecoderLayer", write)


@FAMILIES.register("zaya")
def zaya(model: nn.Module) -> list[Stack] | None:
    """Scale and bias on the stream and on the update, per feature."""

    def write(path: str) -> tuple[Sublayer, ...]:
        def law(name: str) -> Affine:
            at = f"{path}.{name}"
            return Affine(
                model.get_parameter(f"{at}.residual_scale").detach(),
                model.get_parameter(f"{at}.residual_bias").detach(),
                model.get_parameter(f"{at}.hidden_states_scale").detach(),
                model.get_parameter(f"{at}.hidden_states_bias").detach(),
            )

        return _pre_norm_pair(
            model,
            path,
            (law("post_attention_residual_scale"), law("post_mlp_residual_scale")),
            (f"{path}.post_attention_residual_scale", f"{path}.post_mlp_residual_scale"),
        )

    return _stack(model, "ZayaDecoderLayer", write)


@FAMILIES.register("doge")
def doge(model: nn.Module) -> list[Stack] | None:
    """The stream is scaled per feature before every addition."""

    def write(path: str) -> tuple[Sublayer, ...]:
        laws = tuple(
            Affine(model.get_parameter(f"{path}.{name}").detach(), formula="r x + u")
            for name in ("input_residual", "post_attention_residual")
        )
        return _pre_norm_pair(model, path, laws, (None, None))

    return _stack(model, "DogeDecoderLayer", write)


def _pre_norm_pair(
    model: nn.Module,
    path: str,
    laws: tuple[Affine, ...],
    scalings: tuple[str | None, str | None],
) -> tuple[Sublayer, ...]:
    rows = (
        ("attention", "input_layernorm", "self_attn"),
        ("mlp", "post_attention_layernorm", "mlp"),
    )
    return tuple(
        Sublayer(
            index + 1,
            role,
            f"{path}.{module}",
            placement="pre",
            law=laws[index],
            parameters=parameters_under(
                model,
                f"{path}.{norm}",
                f"{path}.{module}",
                *([scalings[index]] if scalings[index] is not None else []),  # pyright: ignore
            ),
        )
        for index, (role, norm, module) in enumerate(rows)
    )
