"""Multi-head attention, with grouped queries, rotary positions, query-key norms, value residual.

    head h:  softmax(scale q_h k_g' + mask) v_g,   g = the group of h
    update:  concatenated heads times W_o

Vaswani et al. 2017 (arXiv 1706.03762). scale = 1/sqrt(head width) unless given,
head width = width / heads unless `head_width` is given. `causal` hides later tokens. `bias` is for
query, key and value, and for the output unless `output_bias` says otherwise. One matrix holds
W_q, W_k and W_v. `groups` key-value heads serve all heads (Ainslie et al. 2023, arXiv 2305.13245).
`qk_norm`: "head" norms every query and key over its head width, "width" over all heads together
(OLMo-2). `value_residual` (Zhou et al. 2024, arXiv 2410.17897): v_l <- (1 - r) v_l + r v_1 with
r = 0.5 in the paper, or "learned", which starts there with one number per layer from the second.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.errors import RecipeError
from leadline.parts.branches.branch import ATTENTIONS, Branch, Inside, Run, linear
from leadline.parts.options import flag, number, whole_number
from leadline.parts.place import Place

LEARNED_START = 0.5


@ATTENTIONS.register("multihead")
class MultiHead(Branch):
    """Softmax attention of several heads."""

    def __init__(
        self,
        place: Place,
        inside: Inside,
        *,
        causal: bool = True,
        groups: int | None = None,
        head_width: int | None = None,
        qk_norm: str | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        scale: float | None = None,
        value_residual: float | str | None = None,
    ) -> None:
        super().__init__()
        heads = place.heads
        groups = heads if groups is None else whole_number("multihead", "groups", groups)
        if heads % groups:
            raise RecipeError(
                f"{heads} heads cannot share {groups} groups of keys and values; "
                "choose a number of groups that divides the heads."
            )
        size = place.width // heads
        if head_width is not None:
            size = whole_number("multihead", "head_width", head_width)
        self.layer = place.layer
        self.causal = flag("multihead", "causal", causal)
        self.heads, self.groups, self.size = heads, groups, size
        self.scale = scale
        if scale is not None:
            self.scale = number(
                "multihead",
                "scale",
                scale,
                wanted="a number above 0",
                fits=lambda s: s > 0.0,
            )
        self.widths = (heads * size, groups * size, groups * size)
        bias = flag("multihead", "bias", bias)
        if output_bias is None:
            output_bias = bias
        self.qkv = linear(place.width, sum(self.widths), bias=bias)
        self.output = linear(
            heads * size, place.width, bias=flag("multihead", "output_bias", output_bias)
        )
        if qk_norm not in (None, "head", "width"):
            raise RecipeError(
                f"qk_norm is {qk_norm!r}; choose head (over each head), width (over all heads "
                "together) or none."
            )
        self.norms_all_heads = qk_norm == "width"
        self.query_norm, self.key_norm, self.value_norm = (
            inside(point, size) for point in ("query", "key", "value")
        )
        if qk_norm is not None:
            self.query_norm = place.norm(self.widths[0] if self.norms_all_heads else size)
            self.key_norm = place.norm(self.widths[1] if self.norms_all_heads else size)
        self.head_scale = inside("heads", heads)
        self.mixed_norm = inside("mixed", heads * size)
        self.share = _share(value_residual, place.layer)
        self.shares = self.share is not None

    def forward(self, x: Tensor, run: Run) -> Tensor:
        examples, tokens, _ = x.shape
        q, k, v = self.qkv(x).split(self.widths, -1)
        if self.norms_all_heads:
            q, k = _normed(self.query_norm, q), _normed(self.key_norm, k)
        q = q.view(examples, tokens, self.heads, self.size)
        k = k.view(examples, tokens, self.groups, self.size)
        v = v.view(examples, tokens, self.groups, self.size)
        if not self.norms_all_heads:
            q, k = _normed(self.query_norm, q), _normed(self.key_norm, k)
        v = _normed(self.value_norm, v)
        if self.share is not None:
            first = run.shared.setdefault("values", v)
            v = v if first is v else v + self.share * (first - v)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if run.rotate is not None:
            q, k = run.rotate(q), run.rotate(k)
        if run.cache is not None:
            k, v = run.cache.extend(self.layer, k, v)
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=run.mask,
            is_causal=run.causal,
            scale=self.scale,
            enable_gqa=self.groups != self.heads,
        )
        if self.head_scale is not None:
            out = self.head_scale(out)
        out = _normed(self.mixed_norm, out.transpose(1, 2).reshape(examples, tokens, -1))
        return self.output(out)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from zip(("query", "key", "value"), self.qkv.weight.split(self.widths), strict=True)
        yield "output", self.output.weight


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _share(value_residual: float | str | None, layer: int) -> nn.Parameter | float | None:
    if value_residual is None:
        return None
    if value_residual == "learned":
        # The first layer has nothing before it to take values from.
        return LEARNED_START if layer == 1 else nn.Parameter(torch.tensor(LEARNED_START))
    if isinstance(value_residual, str):
        raise RecipeError(
            f"value_residual is {value_residual!r}; give the share of the first values, such as "
            "0.5, or learned."
        )
    return number(
        "multihead",
        "value_residual",
        value_residual,
        wanted="a number from 0 to 1",
        fits=lambda x: 0.0 <= x <= 1.0,
    )
