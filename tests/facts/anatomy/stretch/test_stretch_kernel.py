"""Torch's own attention is seen however a model reaches it, and the plain kernel is tried."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention

import leadline
from leadline.anatomy.stretch.kernel import attention_watched

WIDTH, TOKENS = 16, 6


class Encoder(nn.Module):
    """Torch's own encoder, whose attention is inside of a function of torch."""

    def __init__(self, *, batch_first: bool, norm_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 32, batch_first=batch_first, norm_first=norm_first
        )
        self.embedding = nn.Embedding(50, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        # All layers of torch's encoder begin as copies of one.
        for parameter in self.encoder.parameters():
            nn.init.normal_(parameter, std=0.2)
        self.batch_first = batch_first

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.turned(self.encoder(self.turned(self.embedding(ids))))


def by_hand(model: Encoder, ids: torch.Tensor, layer: int) -> torch.Tensor:
    """The singular values of one layer, of every example, from dense matrices in float64."""
    wide = copy.deepcopy(model).double().eval()
    found: list[torch.Tensor] = []
    for one in ids:
        with torch.no_grad():
            x = wide.turned(wide.embedding(one[None]))
            for earlier in wide.encoder.layers[: layer - 1]:
                x = earlier(x)
        matrix = torch.autograd.functional.jacobian(wide.encoder.layers[layer - 1], x)
        found.append(torch.linalg.svdvals(matrix.reshape(TOKENS * WIDTH, TOKENS * WIDTH)))
    return torch.stack(found)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_encoder_has_singular_values(batch_first: bool, norm_first: bool) -> None:
    model = Encoder(batch_first=batch_first, norm_first=norm_first).eval()
    ids = torch.randint(0, 50, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    found = leadline.jacobian(model, ids, layer=2, k=4).jacobian
    assert found.kernel.startswith("math, output agrees to")
    assert not [remark for remark in found.remarks if "left out" in remark]
    truth = by_hand(model, ids, 2)[:, :4]
    assert torch.allclose(torch.from_numpy(found.values), truth, rtol=2e-5)


def fused(x: torch.Tensor) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True).eval()
    return layer(x)


def functional(x: torch.Tensor) -> object:
    weights = torch.zeros(3 * WIDTH, WIDTH), torch.zeros(3 * WIDTH)
    out = torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH)
    return multi_head_attention_forward(
        x, x, x, WIDTH, 2, *weights, None, None, False, 0.0, *out, need_weights=False
    )


def differentiable_mask(x: torch.Tensor) -> object:
    """Torch takes its plain attention by itself, which is matrix products as an operation."""
    with torch.enable_grad():
        mask = torch.zeros(TOKENS, TOKENS, requires_grad=True)
        return scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=mask)


@pytest.mark.parametrize(
    ("run", "seen"),
    [
        (lambda x: scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]), True),
        (lambda x: nn.MultiheadAttention(WIDTH, 2)(x, x, x, need_weights=False), True),
        (functional, True),
        (fused, True),
        (differentiable_mask, True),
        (lambda x: torch.softmax(x @ x.mT, -1) @ x, False),
        (nn.Linear(WIDTH, WIDTH), False),
    ],
    ids=["function", "module", "of many heads", "fused", "plain", "by hand", "linear"],
)
@torch.no_grad()
def test_attention_is_seen_by_whatever_way_it_is_reached(run, seen) -> None:
    x = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    with attention_watched() as attention:
        run(x)
    assert attention.ran is seen


@torch.no_grad()
def test_operators_that_take_functions_run_while_they_are_watched() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.randn(1, 1, TOKENS, WIDTH)
    # Measuring never compiles, and flex attention would.
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.simplefilter("ignore")
        real = flex_attention(x, x, x)
        with attention_watched():
            watched = flex_attention(x, x, x)
    assert torch.equal(real, watched)
