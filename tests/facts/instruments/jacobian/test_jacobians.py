"""jacobian and lyapunov: against answers by hand, against dense matrices, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import leadline
from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import InputError, ProbeError
from leadline.instruments.passes.linear.checks import JOINED
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.testing.tiny import Linear, MeanAttention

ALPHA, BETA = 0.5, -0.25
WRITES = leadline.declare(blocks="layers", writes=["attention", "mlp"])
TOKENS, WIDTH = 6, 4


def linear(depth=3):
    """J of a layer is (1 + beta)(I + alpha 11'/n): (1 + alpha)(1 + beta) once per feature."""
    return Linear(depth, alpha=ALPHA, beta=BETA)


def stream(examples=1, tokens=TOKENS):
    return torch.randn(examples, tokens, WIDTH, generator=torch.Generator().manual_seed(0))


def transformer(**fields):
    model = leadline.Transformer(**{"depth": 3, "width": 16, "heads": 2, "vocabulary": 13} | fields)
    ids = torch.randint(0, 13, (2, 5), generator=torch.Generator().manual_seed(3))
    return model, ids


def matrices(model, ids, start, end):
    """The Jacobian of the same model in float64, whole."""
    model = type(model)(model.recipe, seed=model.seed).double()
    stack = leadline.anatomy_of(model, ids).stacks[0]
    found = Stretches(model, stack, lambda: model(ids))
    return dense(Linearised(*found.function(start, end)))


def test_one_layer_by_hand():
    found = leadline.jacobian(linear(), stream(), layer=2, k=6, smallest=1).jacobian
    strong, weak = (1 + ALPHA) * (1 + BETA), 1 + BETA
    assert found.values[0] == pytest.approx([strong] * WIDTH + [weak] * 2, rel=1e-6)
    assert found.smallest[0] == pytest.approx([weak], rel=1e-5)
    assert (found.start, found.end, found.shape) == (1, 2, (1, TOKENS, WIDTH))
    squares = (strong**2 + (TOKENS - 1) * weak**2) / TOKENS
    assert abs(found.norm[0] - math.sqrt(squares)) < 4 * found.norm_error[0] + 1e-6
    apart = ((strong - 1) ** 2 + (TOKENS - 1) * BETA**2) / TOKENS
    assert abs(found.distance[0] - math.sqrt(apart)) < 4 * found.distance_error[0] + 1e-6
    # J - I has BETA in most directions, and |BETA| is more than (1 + a)(1 + b) - 1 = 1/8.
    assert found.branch[0] == pytest.approx(abs(BETA), rel=1e-5)
    assert found.causal is False and found.leak > 0


def test_the_whole_stack_by_hand():
    found = leadline.jacobian(linear(3), stream(), k=1).jacobian
    strong = (1 + ALPHA) * (1 + BETA)
    assert (found.start, found.end) == (0, 3)
    assert found.values[0, 0] == pytest.approx(strong**3, rel=1e-6)
    assert found.blocks == pytest.approx(np.full((3, 1), strong), rel=1e-6)
    # Equal symmetric blocks: nothing is lost by multiplying norms.
    assert found.looseness == pytest.approx([1.0], rel=1e-5)
    assert found.strongest.entry[0] == pytest.approx(np.full(TOKENS, 1 / TOKENS), abs=1e-4)
    assert found.strongest.overlap == pytest.approx([1.0], abs=1e-5)


def test_one_write_by_hand():
    first = leadline.jacobian(linear(), stream(), layer=1, sublayer=1, k=1, anatomy=WRITES).jacobian
    second = leadline.jacobian(
        linear(), stream(), layer=1, sublayer=2, k=1, anatomy=WRITES
    ).jacobian
    assert first.values[0, 0] == pytest.approx(1 + ALPHA, rel=1e-6)
    assert second.values[0, 0] == pytest.approx(1 + BETA, rel=1e-6)
    assert second.distance[0] == pytest.approx(abs(BETA), rel=1e-6)  # beta I has no spread
    assert second.sublayer == 2 and second.causal is True


@pytest.mark.parametrize("layer", [2, (0, 2), (1, 3), None])
def test_everything_is_that_of_the_dense_matrix(layer):
    model, ids = transformer()
    found = leadline.jacobian(
        model, ids, layer=layer, smallest=2, vectors=True, probes=400
    ).jacobian
    whole = matrices(model, ids, found.start, found.end)
    sigma = torch.linalg.svdvals(whole).numpy()
    assert found.values == pytest.approx(sigma[:, :4], rel=1e-5)
    assert (abs(found.values - sigma[:, :4]) <= found.errors).all()
    assert found.smallest == pytest.approx(sigma[:, :-3:-1], rel=1e-3)
    apart = whole - torch.eye(whole.shape[1])
    assert found.branch == pytest.approx(torch.linalg.svdvals(apart)[:, 0].numpy(), rel=1e-5)
    root = math.sqrt(found.size)
    for value, error, matrix in (
        (found.norm, found.norm_error, whole),
        (found.distance, found.distance_error, apart),
    ):
        truth = torch.linalg.matrix_norm(matrix).numpy() / root
        assert (abs(value - truth) < 4 * error).all() and (error < 0.02 * truth).all()
    # The vectors are singular vectors, and the shares are theirs.
    right = torch.from_numpy(found.right).flatten(2)
    left = torch.from_numpy(found.left).flatten(2)
    moved = torch.einsum("eij,kej->kei", whole, right)
    scaled = torch.from_numpy(found.values.T).unsqueeze(2) * left
    assert torch.allclose(moved, scaled, atol=1e-3)
    assert found.strongest.entry == pytest.approx((found.right[0] ** 2).sum(2), rel=1e-6)
    assert found.strongest.exit.sum(1) == pytest.approx([1, 1], rel=1e-5)
    assert found.strongest.value == pytest.approx(found.values[:, 0])
    assert found.weakest.value == pytest.approx(found.smallest[:, 0])


def test_a_product_of_norms_is_more_than_the_norm_of_the_product():
    model, ids = transformer()
    found = leadline.jacobian(model, ids, k=1).jacobian
    single = np.stack(
        [leadline.jacobian(model, ids, layer=l, k=1).jacobian.values[:, 0] for l in (1, 2, 3)]
    )
    assert found.blocks == pytest.approx(single, rel=1e-5)
    assert (found.looseness > 1.05).all()


@pytest.mark.parametrize("causal", [True, False])
def test_causality_is_exact(causal):
    model, ids = transformer(attention={"name": "multihead", "causal": causal})
    found = leadline.jacobian(model, ids, k=1).jacobian
    assert found.causal is causal
    assert (found.leak == 0.0) is causal
    assert leadline.jacobian(model, ids[:, :1], layer=1, k=1).jacobian.causal is None


def test_a_span_inside_a_long_text_is_not_called_causal_unseen():
    """Of a text of 90 tokens not all places are looked at: no leak seen is no proof."""
    model = leadline.Transformer(depth=1, width=8, heads=2, vocabulary=20, context=90)
    ids = torch.randint(0, 20, (1, 90), generator=torch.Generator().manual_seed(0))
    found = leadline.jacobian(model, ids, layer=1, k=1).jacobian
    assert (found.leak, found.causal) == (0.0, None)
    assert any("64 of the 89 places" in remark for remark in found.remarks)
    assert leadline.jacobian(model, ids[:, :65], layer=1, k=1).jacobian.causal is True


class Pairs(MeanAttention):
    """Tokens 1 and 2 see each other, then 3 and 4, ...: no half of the text sees the other."""

    def forward(self, x):
        return self.alpha * x.unflatten(1, (-1, 2)).flip(2).flatten(1, 2)


@pytest.mark.parametrize("tokens", [4, 8, 24])
def test_a_window_that_looks_ahead_is_no_causality(tokens):
    model = linear()
    for layer in model.layers:
        layer.attention = Pairs(ALPHA)
    found = leadline.jacobian(model, stream(tokens=tokens), layer=1, k=1, anatomy=WRITES).jacobian
    assert found.causal is False and found.leak > 0


class Crowd(MeanAttention):
    """Every example sees the mean of the batch as well."""

    def forward(self, x):
        return super().forward(x) + 0.1 * x.mean(0, keepdim=True)


def test_examples_that_see_each_other_are_refused():
    model = linear()
    model.layers[0].attention = Crowd(ALPHA)
    with pytest.raises(ProbeError, match="examples of this batch see each other"):
        leadline.jacobian(model, stream(2), layer=1, k=1, anatomy=WRITES)
    found = leadline.jacobian(model, stream(2), layer=2, k=1, anatomy=WRITES).jacobian
    assert found.values.shape == (2, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": 0}, "layers of the encoder count from 1 to 3"),
        ({"layer": 4}, "layers of the encoder count from 1 to 3"),
        ({"layer": (2, 1)}, "a stretch goes forward"),
        ({"layer": (0, 9)}, "sites 0 \\(what enters layer 1\\) to 3"),
        ({"layer": "two"}, "give a number, or two sites such as \\(0, 3\\)"),
        ({"layer": (1, 2, 3)}, "give a number, or two sites"),
        ({"layer": 1, "sublayer": 3}, "layer 1 has sublayers 1 to 2"),
        ({"sublayer": 1}, "without its layer"),
        ({"k": 0}, "whole number of at least 1"),
        ({"k": 25, "layer": 1}, "this Jacobian has 24"),
        ({"k": True}, "k is True; give a whole number of at least 1"),
        ({"smallest": -1}, "whole number of at least 0"),
        ({"probes": 1}, "whole number of at least 2"),
        ({"tolerance": 0.0}, "between 0 and 1"),
        ({"stack": "decoder"}, "No stack is called 'decoder'; this model has: encoder"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(options, said):
    with pytest.raises(InputError, match=said):
        leadline.jacobian(linear(), stream(), anatomy=WRITES, **options)


def test_broken_weights_and_inputs_are_named():
    model, ids = transformer()
    known = leadline.anatomy_of(model, ids)
    with torch.no_grad():
        model.blocks[1].mlp.branch.get_parameter(
            next(n for n, _ in model.blocks[1].mlp.branch.named_parameters())
        ).fill_(float("nan"))
    with pytest.raises(InputError, match="holds values that are not finite"):
        leadline.jacobian(model, ids, layer=1, anatomy=known)
    with pytest.raises(InputError, match="not finite"):
        leadline.lyapunov(linear(), stream() * float("inf"))


def test_half_precision_is_said():
    model, ids = transformer()
    found = leadline.jacobian(model.to(torch.bfloat16), ids, layer=2, k=1).jacobian
    assert found.precision == "bfloat16 weights, computed on float32 copies"
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_dropout_that_is_a_module_is_switched_off():
    model, ids = transformer(connection={"name": "dropout", "rate": 0.5})
    model.train()
    still = leadline.jacobian(model.eval(), ids, layer=1, k=1).jacobian.values
    assert leadline.jacobian(model.train(), ids, layer=1, k=1).jacobian.values == pytest.approx(
        still
    )
    assert model.training


def test_compiled_models_are_measured():
    model, ids = transformer()
    plain = leadline.jacobian(model, ids, layer=2, k=2).jacobian
    compiled = leadline.jacobian(
        torch.compile(model, backend="aot_eager"), ids, layer=2, k=2
    ).jacobian
    assert compiled.values == pytest.approx(plain.values, rel=1e-6)


def test_without_second_derivatives_the_norms_are_still_there(monkeypatch):
    model, ids = transformer()
    full = leadline.jacobian(model, ids, layer=2).jacobian

    def refuse(self, output):
        self.refusal = "the kernel has none"

    monkeypatch.setattr(Stretches, "_switch", refuse)
    found = leadline.jacobian(model, ids, layer=2).jacobian
    assert found.values.shape == (2, 0) and np.isnan(found.branch).all()
    assert found.norm == pytest.approx(full.norm, rel=1e-5)
    assert "Singular values: left out, because the kernel has none." in found.remarks
    assert leadline.jacobian(model, ids).jacobian.blocks is None
    with pytest.raises(ProbeError, match="Carry them backward"):
        leadline.lyapunov(model, ids, backward=False)


def test_an_operation_without_a_second_derivative_is_named(monkeypatch):
    model, ids = transformer()
    monkeypatch.setattr(Stretches, "_switch", lambda self, output: None)
    found = leadline.jacobian(model, ids, layer=2).jacobian
    assert found.values.shape == (2, 0)
    assert "left out, because the operation" in found.remarks[0]
    assert "has no second derivative" in found.remarks[0]
    assert (found.norm > 0).all()


def test_measuring_leaves_no_trace():
    model, ids = transformer()
    model.train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    flags = [p.requires_grad for p in model.parameters()]
    state = torch.get_rng_state()
    leadline.jacobian(model, ids, layer=1, k=1)
    leadline.lyapunov(model, ids, k=2)
    assert model.training and [p.requires_grad for p in model.parameters()] == flags
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("what", ["jacobian", "whole", "lyapunov"])
def test_progress_ends_where_it_said_it_would(what):
    model, ids = transformer()
    seen = []

    def progress(*said):
        seen.append(said)

    if what == "lyapunov":
        leadline.lyapunov(model, ids, k=2, progress=progress)
    else:
        layer = None if what == "whole" else 2
        leadline.jacobian(model, ids, layer=layer, k=1, smallest=1, progress=progress)
    done, totals = [s[1] for s in seen], [s[2] for s in seen]
    assert seen[-1] == ("done", totals[-1], totals[-1])
    assert done == list(range(totals[-1] + 1))
    # The depth is known once the anatomy is read; from then on the total stays.
    assert set(totals[1:]) == {totals[-1]}


# --- lyapunov ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [True, False])
def test_exponents_by_hand(backward):
    found = leadline.lyapunov(linear(40), stream(), k=WIDTH + 2, backward=backward).lyapunov
    strong, weak = math.log((1 + ALPHA) * (1 + BETA)), math.log(1 + BETA)
    assert found.exponents[0, :WIDTH] == pytest.approx([strong] * WIDTH, abs=0.05)
    assert found.exponents[0, WIDTH:] == pytest.approx([weak] * 2, abs=0.05)
    # Deep inside the directions have settled, and each layer gives its own logarithm.
    middle = np.sort(found.growth[20, 0])[::-1]
    assert middle == pytest.approx([strong] * WIDTH + [weak] * 2, abs=1e-4)
    assert found.depth == 40


@pytest.mark.parametrize("backward", [True, False])
def test_with_all_directions_the_sum_is_the_logarithm_of_the_determinant(backward):
    model, ids = transformer(width=4)
    found = leadline.lyapunov(model, ids, k=20, backward=backward).lyapunov
    truth = torch.linalg.slogdet(matrices(model, ids, 0, 3)).logabsdet.numpy()
    assert found.exponents.sum(1) * 3 == pytest.approx(truth, abs=1e-4)
    assert (np.diff(found.exponents, axis=1) <= 0).all()
    assert found.growth.sum((0, 2)) == pytest.approx(truth, abs=1e-4)
    block = torch.linalg.slogdet(matrices(model, ids, 1, 2)).logabsdet.numpy()
    assert found.growth[1].sum(1) == pytest.approx(block, abs=1e-4)


@pytest.mark.parametrize("backward", [True, False])
def test_partial_norms_are_those_of_the_products(backward):
    model, ids = transformer()
    found = leadline.lyapunov(model, ids, k=64, backward=backward).lyapunov
    assert found.log10_norm.shape == (4, 2)
    for site in range(4):
        start, end = (site, 3) if backward else (0, site)
        truth = np.zeros(2)
        if start < end:
            norm = torch.linalg.matrix_norm(matrices(model, ids, start, end))
            truth = np.log10(norm.numpy() / math.sqrt(80))
        assert (abs(found.log10_norm[site] - truth) < 4 * found.log10_norm_error[site]).all()
        assert (found.log10_norm_error[site] < 0.05).all()


def test_blocks_joined_by_more_than_the_stream_are_refused():
    assert JOINED == 1e-3
    model, ids = transformer(attention={"name": "multihead", "value_residual": 0.5})
    with pytest.raises(ProbeError, match="not the product of those of its blocks"):
        leadline.lyapunov(model, ids, k=2)
    with pytest.raises(ProbeError, match="not the product of those of its blocks"):
        leadline.lyapunov(model, ids, k=2, backward=False)
    found = leadline.jacobian(model, ids).jacobian
    assert found.blocks is None
    assert "the Jacobian is not the product of those of its blocks" in found.remarks[0]
    sigma = torch.linalg.svdvals(matrices(model, ids, 0, 3)).numpy()
    assert found.values == pytest.approx(sigma[:, :4], rel=1e-5)


def test_a_second_stream_that_is_not_read_between_layers_is_no_hindrance():
    model, ids = transformer(connection="dual", placement="post")
    assert leadline.lyapunov(model, ids, k=2).lyapunov.exponents.shape == (2, 2)


def test_a_product_beyond_the_number_type_is_not_compared_and_that_is_said(monkeypatch):
    monkeypatch.setattr(Stretches, "side_by_side", True)
    model = Linear(40, alpha=ALPHA, beta=-0.999)
    found = leadline.lyapunov(model, stream(), k=2, anatomy=WRITES).lyapunov
    # (1 + beta)^40 is 1e-120, far below float32; the exponents know it.
    assert found.exponents[0, 0] == pytest.approx(math.log(1.5e-3), abs=0.1)
    assert any("not compared with the whole model" in remark for remark in found.remarks)


def test_more_directions_than_the_stream_has_are_refused():
    with pytest.raises(InputError, match="the stream has 24"):
        leadline.lyapunov(linear(), stream(), k=25)
    with pytest.raises(InputError, match="whole number of at least 1"):
        leadline.lyapunov(linear(), stream(), k=0)


def test_padding_is_mentioned():
    model, ids = transformer()
    mask = torch.ones_like(ids)
    mask[0, -1] = 0
    found = leadline.jacobian(
        model, {"input_ids": ids, "attention_mask": mask}, layer=1, k=1
    ).jacobian
    assert "padding" in found.remarks[0]
