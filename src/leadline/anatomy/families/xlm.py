"""XLM and Flaubert: no block module at all.

The model keeps four lists (attentions, layer_norm1, ffns, layer_norm2) and its own forward adds
and norms between them. Post-norm:

    x <- layer_norm1[i](x + attentions[i](x));  x <- layer_norm2[i](x + ffns[i](x))

Flaubert's `pre_norm` variant has no module that sees the end of a layer; it is left to the user's
declaration.
"""

from __future__ import annotations

from torch import nn

from leadline.anatomy.families.family import FAMILIES, parameters_under
from leadline.anatomy.structure import Block, Port, Stack, Sublayer


@FAMILIES.register("flaubert")
@FAMILIES.register("xlm")
def xlm(model: nn.Module) -> list[Stack] | None:
    """Attention and feed-forward lists side by side, post-norm."""
    for path, module in model.named_modules():
        if isinstance(getattr(module, "ffns", None), nn.ModuleList):
            if getattr(module, "pre_norm", False):
                return None
            return [_stack(model, path, module)]
    return None


def _stack(model: nn.Module, path: str, module: nn.Module) -> Stack:
    at = f"{path}." if path else ""
    depth = len(module.get_submodule("attentions")._modules)
    blocks: list[Block] = []
    for i in range(depth):
        attention, ffn = f"{at}attentions.{i}", f"{at}ffns.{i}"
        first, second = f"{at}layer_norm1.{i}", f"{at}layer_norm2.{i}"
        blocks.append(
            Block(
                layer=i + 1,
                module=attention,
                entry=Port(attention, "input"),
                exit=Port(second, "output"),
                sublayers=(
                    Sublayer(
                        1,
                        "attention",
                        attention,
                        settle=first,
                        placement="post",
                        parameters=parameters_under(model, attention, first),
                    ),
                    Sublayer(
                        2,
                        "mlp",
                        ffn,
                        settle=second,
                        placement="post",
                        parameters=parameters_under(model, ffn, second),
                    ),
                ),
            )
        )
    width = int(model.get_submodule(blocks[0].exit.module).weight.shape[0])  # pyright: ignore
    return Stack("encoder", tuple(blocks), width, causal=False)
