"""W05 and W06 by what meets in a product and by trials of the loss: each with its look-alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from leadline.lab import pair
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.record import Finding
from tests.visits import gpt2, language, visited

HEADS, WIDTH = 4, 64
CHECKS = ["alignment", "norms", "output", "structure", "weights", "wiring"]


def balanced(change: Callable[[Any], object] = lambda model: model) -> Any:
    """A GPT-2 in which O_h^T O_h = V_h V_h^T and Q_h Q_h^T = K_h K_h^T exactly, as training tends to.

    O_h = R V_h^T with an orthogonal R, and likewise for the keys; rows of the MLP get one scale each.
    """
    model = gpt2(6, width=WIDTH)
    generator = torch.Generator().manual_seed(4)

    def turn() -> Tensor:
        return torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=generator))[0]

    with torch.no_grad():
        for block in model.transformer.h:
            query, _, value = block.attn.c_attn.weight.split(WIDTH, dim=1)  # [in, out]
            block.attn.c_attn.weight[:, WIDTH : 2 * WIDTH] = turn() @ query
            block.attn.c_proj.weight.copy_(value.T @ turn())
            scales = torch.randn(4 * WIDTH, generator=generator).mul(0.3).exp()
            block.mlp.c_fc.weight.mul_(scales)
            block.mlp.c_proj.weight.mul_(scales[:, None])
        for parameter in model.parameters():
            if parameter.ndim == 1:  # no fresh model has biases like these
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        change(model)
    return model


def trained(change: Callable[[Any], object] = lambda model: model) -> Any:
    """The embedded model, trained on bytes of source code, after a change."""
    model, _ = pair.pre()
    with torch.no_grad():
        change(model)
    return model.eval()


def every(model: Any, code: str, inputs: Any = None) -> list[Finding]:
    record = visited(model, inputs, checks=CHECKS)
    return [one for one in diagnose_record(record, select=[code]).findings if one.code == code]


def found(model: Any, code: str, inputs: Any = None) -> Finding | None:
    return next(iter(every(model, code, inputs)), None)


def meetings(model: Any, kind: str) -> list[dict[str, Any]]:
    facts = visited(model, checks=["wiring"], twin=False).provenance["visit"]["wiring"]
    return [one for one in facts if one["kind"] == kind]


def swap(one: Tensor, other: Tensor) -> None:
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def exchange_keys_and_values(model: Any) -> None:
    for block in model.transformer.h:
        weight = block.attn.c_attn.weight
        swap(weight[:, WIDTH : 2 * WIDTH], weight[:, 2 * WIDTH :])


def roll_heads(model: Any) -> None:
    for block in model.transformer.h:
        weight = block.attn.c_proj.weight  # [in, out]: the heads are rows
        weight.copy_(weight.roll(WIDTH // HEADS, dims=0))


def test_matrices_with_equal_gram_matrices_are_wholly_alike() -> None:
    model = balanced()
    for kind in ("values", "queries"):
        likeness = [one["likeness"] for one in meetings(model, kind)]
        assert likeness == pytest.approx([1.0] * 6, abs=1e-4)
    # Of other layers: 4 heads of 120 entries each, so 0 within 5 deviations.
    assert all(abs(one["nearest"]["likeness"]) < 5 / 480**0.5 for one in meetings(model, "values"))
    assert all(one["likeness"] > 0.8 for one in meetings(model, "mlp"))
    assert found(model, "W05") is None and found(model, "W06") is None


def test_a_fresh_model_is_not_asked() -> None:
    facts = visited(gpt2(4), checks=["wiring"], twin=False).provenance["visit"]
    assert "wiring" not in facts and "as drawn" in facts["could_not"]["wiring"]


def test_w06_keys_in_place_of_values_fit_the_output_matrix() -> None:
    finding = found(balanced(exchange_keys_and_values), "W06")
    assert finding is not None and finding.layers == (1, 2, 3, 4, 5, 6)
    assert "Keys and values are exchanged" in finding.verdict
    assert finding.evidence[0]["value"] == pytest.approx(1.0, abs=1e-4)


def test_w06_keys_and_values_of_a_trained_model_that_then_predicts_badly() -> None:
    def exchange(model: Any) -> None:
        for block in model.blocks:
            for tensor in (block.attention.branch.qkv.weight, block.attention.branch.qkv.bias):
                _, keys, values = tensor.chunk(3)
                swap(keys, values)

    finding = found(trained(exchange), "W06", language())
    assert finding is not None and finding.sublayer == "attention"


def test_w06_heads_in_another_order_are_named_in_their_order() -> None:
    finding = found(balanced(roll_heads), "W06")
    assert finding is not None and finding.layers == (1, 2, 3, 4, 5, 6)
    # Rolled by one: the first head of the matrix now reads what belongs to the last.
    assert "the values of 4, 1, 2, 3" in finding.verdict


@pytest.mark.parametrize("role", ["attn", "mlp"])
def test_w05_two_exchanged_matrices_are_found_with_the_layers_they_come_from(role: str) -> None:
    def exchange(model: Any) -> None:
        one, other = (model.transformer.h[at].get_submodule(role).c_proj.weight for at in (1, 4))
        swap(one, other)

    named = sorted(every(balanced(exchange), "W05"), key=lambda one: one.layers)
    assert [one.layers for one in named] == [(2,), (5,)]
    verdicts = [one.verdict for one in named]
    assert "that of layer 5 fits" in verdicts[0] and "that of layer 2 fits" in verdicts[1]


def test_w05_a_transposed_output_matrix_fits_the_other_way_round() -> None:
    def transpose(model: Any) -> None:
        weight = model.transformer.h[2].attn.c_proj.weight
        weight.copy_(weight.T.clone())

    finding = found(balanced(transpose), "W05")
    assert finding is not None and finding.layers == (3,)
    assert "its transpose fits" in finding.verdict


def test_w05_layers_that_were_exchanged_are_found_by_putting_them_back() -> None:
    healthy = trained()
    assert found(healthy, "W05", language()) is None

    def exchange(model: Any) -> None:
        others = dict(model.blocks[5].named_parameters())
        for name, parameter in model.blocks[2].named_parameters():
            swap(parameter, others[name])

    finding = found(trained(exchange), "W05", language())
    assert finding is not None and finding.layers == (3, 6)
    with torch.no_grad():
        ids = language()[:2, :32]
        logits = healthy(ids)
    logits = getattr(logits, "logits", logits)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    # Put back, the loss is that of the healthy model.
    assert finding.evidence[0]["value"] == pytest.approx(float(loss), rel=1e-4)


def test_w05_a_normal_draw_among_trained_uniform_ones_is_foreign() -> None:
    def redraw(model: Any) -> None:
        weight = model.blocks[2].attention.branch.output.weight
        generator = torch.Generator().manual_seed(0)
        weight.copy_(weight.std() * torch.randn(weight.shape, generator=generator))

    finding = found(trained(redraw), "W05", language())
    assert finding is not None and finding.layers == (3,)
