"""The collapse probe on our own Transformer: every number against weights read by hand."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline as ll
from leadline.parts import Transformer
from leadline.record import Record
from leadline.testing.tiny import MeanAttention
from leadline.theory.rank_collapse.lipschitz import lip

WIDTH, HEADS, TOKENS = 12, 3, 7
ALONE = {"mlp": "none", "connection": "none", "placement": "none", "positions": "none"}
OF_HEADS = {
    "collapse.query_key",
    "collapse.value_output_1",
    "collapse.value_output_inf",
    "collapse.value_gain",
    "collapse.gamma",
    "collapse.joint_gamma",
    "collapse.diagonal",
    "collapse.cubic_law",
}


def network(attention: dict[str, Any] | None = None, **settings: Any) -> Transformer:
    chosen = {"depth": 2, "width": WIDTH, "heads": HEADS, "vocabulary": 40, "context": 16}
    chosen |= {"attention": {"name": "multihead", "causal": False} | (attention or {})}
    model = Transformer(seed=0, **(chosen | settings)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.3 * noise.to(parameter.dtype))
    return model


def ids(examples: int = 2, tokens: int = TOKENS) -> Tensor:
    return torch.randint(1, 40, (examples, tokens), generator=torch.Generator().manual_seed(2))


def value(
    record: Record, quantity: str, statistic: str, *, head: int | None = None, **where: Any
) -> float:
    found = record.select(quantity, statistic=statistic, **where)
    (reading,) = [r for r in found if r.site.head == head]
    return reading.value


def refused(record: Record) -> dict[str, str]:
    """Why a quantity is missing, by its name."""
    told = record.provenance["coverage"]["refused"]
    return {
        name: one["why"] for one in told for name in one["what"].partition(" of")[0].split(", ")
    }


def test_of_one_token_nothing_is_said_but_that_it_is_too_few() -> None:
    record = ll.measure(network(), ids(1, 1), probes="collapse")
    told = refused(record)
    names = {"query_key", "value_output_1", "value_output_inf", "value_gain"}
    for name in names:
        assert told[f"collapse.{name}"] == "too few tokens"
    assert not any("not found" in why for why in told.values())


def inputs_of(model: nn.Module, tokens: Tensor, **given: Any) -> dict[str, Tensor]:
    """What enters every branch, and what it returns, by the path of its module."""
    found: dict[str, Tensor] = {}
    handles = []
    for path, module in model.named_modules():
        if path.endswith(".branch"):

            def keep(_: Any, args: Any, output: Any, path: str = path) -> None:
                found[path], found[f"{path} returns"] = args[0].detach(), output.detach()

            handles.append(module.register_forward_hook(keep))
        if path.endswith((".attention", ".mlp")):

            def before(_: Any, args: Any, path: str = path) -> None:
                found[f"{path} stream"] = args[0].detach()

            handles.append(module.register_forward_pre_hook(before))
    with torch.no_grad():
        model(tokens, **given)
    for handle in handles:
        handle.remove()
    return found


def matrices(model: Transformer, layer: int, groups: int = HEADS) -> list[list[np.ndarray]]:
    """W_Q, W_K, W_V [width, size] and W_O [size, width] of every head, as they act from the right."""
    branch: Any = model.blocks[layer - 1].attention.branch  # type: ignore[union-attr]
    size = branch.size
    rows = [part.detach().double().T.numpy() for part in branch.qkv.weight.split(branch.widths)]
    out = branch.output.weight.detach().double().T.numpy()
    share = HEADS // groups
    return [
        [
            rows[0][:, h * size : (h + 1) * size],
            rows[1][:, h // share * size : (h // share + 1) * size],
            rows[2][:, h // share * size : (h // share + 1) * size],
            out[h * size : (h + 1) * size],
        ]
        for h in range(HEADS)
    ]


def by_hand(z: np.ndarray, heads: list[list[np.ndarray]], scaling: float) -> dict[str, Any]:
    """Everything of one example, from what enters and the weights; nothing from queries and keys."""
    r = z - z.mean(0)
    forms = [scaling * r @ q @ k.T @ r.T for q, k, _, _ in heads]
    osc = [form.max(1) - form.min(1) for form in forms]
    sizes = [np.abs(form).sum(0).max() for form in forms]
    law = sum(form @ r @ v @ o for form, (_, _, v, o) in zip(forms, heads, strict=True))
    return {
        "gamma": [
            math.sqrt(one.sum() * one.max()) / (2 * size)
            for one, size in zip(osc, sizes, strict=True)
        ],
        "joint": math.sqrt(sum(o.sum() for o in osc) * sum(o.max() for o in osc))
        / (2 * sum(sizes)),
        "law": math.log10(np.linalg.norm(law) / len(z)),
    }


def compare(
    record: Record, layer: int, z: Tensor, heads: list[list[np.ndarray]], **tolerance: float
) -> None:
    scaling = heads[0][0].shape[1] ** -0.5
    close = {"rel": 1e-9} | tolerance
    each = [by_hand(one.double().numpy(), heads, scaling) for one in z]
    for h, (q, k, v, o) in enumerate(heads):
        for name, exact in (
            ("query_key", np.abs(q @ k.T).sum(0).max()),
            ("value_output_1", np.abs(v @ o).sum(0).max()),
            ("value_output_inf", np.abs(v @ o).sum(1).max()),
        ):
            got = value(record, f"collapse.{name}", "value", head=h + 1, layer=layer)
            assert got == pytest.approx(exact, **close)
        got = value(record, "collapse.gamma", "max", head=h + 1, layer=layer)
        assert got == pytest.approx(max(one["gamma"][h] for one in each), **close)
    whole = sum(v @ o for _, _, v, o in heads)
    for name, statistic, exact in (
        ("value_gain", "value", np.linalg.norm(whole, 2)),
        ("joint_gamma", "max", max(one["joint"] for one in each)),
        ("cubic_law", "max", max(one["law"] for one in each)),
    ):
        got = value(record, f"collapse.{name}", statistic, layer=layer)
        assert got == pytest.approx(exact, rel=max(close["rel"], 1e-6))


@pytest.mark.parametrize("groups", [HEADS, 1])
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_attention_alone_against_its_weights(groups: int, norm: str) -> None:
    model = network({"groups": groups}, **ALONE | {"placement": norm}).double()
    record = ll.measure(model, ids(), probes="collapse")
    entered = inputs_of(model, ids())
    for layer in (1, 2):
        z = entered[f"blocks.{layer - 1}.attention.branch"]
        compare(record, layer, z, matrices(model, layer, groups))
    assert record.provenance["coverage"]["refused"] == []


def test_one_head_and_float32() -> None:
    model = network(**ALONE | {"heads": 1})
    record = ll.measure(model, ids(), probes="collapse")
    branch: Any = model.blocks[0].attention.branch  # type: ignore[union-attr]
    q, k, v = (w.detach().double().T.numpy() for w in branch.qkv.weight.chunk(3))
    heads = [[q, k, v, branch.output.weight.detach().double().T.numpy()]]
    z = inputs_of(model, ids())["blocks.0.attention.branch"]
    compare(record, 1, z, heads, rel=2e-5)
    assert value(record, "collapse.gamma", "max", head=1, layer=1) == pytest.approx(
        value(record, "collapse.joint_gamma", "max", layer=1)
    )


def test_a_causal_network_has_its_diagonal_without_the_first_token() -> None:
    model = network({"causal": True}, **ALONE).double()
    record = ll.measure(model, ids(), probes="collapse")
    z = inputs_of(model, ids())["blocks.1.attention.branch"]
    branch: Any = model.blocks[1].attention.branch  # type: ignore[union-attr]
    with torch.no_grad():
        q, k, _ = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in branch.qkv(z).split(branch.widths, -1)
        )
    logits = q @ k.mT * branch.size**-0.5
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    weights = logits.masked_fill(hidden, float("-inf")).softmax(-1)
    exact = weights.diagonal(dim1=-2, dim2=-1)[..., 1:].amax(-1)
    for head in range(HEADS):
        got = value(record, "collapse.diagonal", "max", head=head + 1, layer=2)
        assert got == pytest.approx(float(exact[:, head].max()), rel=1e-9)
    assert value(record, "collapse.diagonal", "max", layer=2) == pytest.approx(float(exact.max()))
    assert float(exact.max()) < 1.0 == float(weights[..., 0, 0].max())


def test_the_law_predicts_the_residual_of_a_collapsing_network() -> None:
    """Each layer of attention alone takes small differences R to (s/n) sum_h R W_QK R' R W_h."""
    model = network({"bias": False}, **ALONE).double()
    record = ll.measure(model, ids(1), probes="collapse,tokens")
    residual = record.by_layer("tokens.residual", statistic="mean").values
    law = record.by_layer("collapse.cubic_law", statistic="max").values
    assert residual[2] < 1e-4
    assert law.tolist() == pytest.approx([math.log10(one) for one in residual[1:]], abs=1e-3)


# --- MLPs and writes -------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lambda_of_an_mlp_is_that_of_its_two_matrices(act: str, dtype: torch.dtype) -> None:
    model = network(mlp=act).to(dtype)
    record = ll.measure(model, ids(), probes="collapse")
    for layer in (1, 2):
        branch: Any = model.blocks[layer - 1].mlp.branch  # type: ignore[union-attr]
        exact = lip(act)
        for weight in (branch.up.weight, branch.down.weight):
            sizes = weight.detach().double().abs()
            exact *= math.sqrt(float(sizes.sum(0).max()) * float(sizes.sum(1).max()))
        assert value(record, "collapse.lipschitz", "value", layer=layer) == pytest.approx(exact)


@pytest.mark.parametrize("connection", ["identity", "none"])
def test_alignment_and_overlap_are_those_of_stream_and_update(connection: str) -> None:
    model = network(connection=connection).double()
    record = ll.measure(model, ids(), probes="collapse")
    entered = inputs_of(model, ids())
    for name, sublayer in (("attention", 1), ("mlp", 2)):
        x, u = entered[f"blocks.1.{name} stream"], entered[f"blocks.1.{name}.branch returns"]
        rx, ru = x - x.mean(1, keepdim=True), u - u.mean(1, keepdim=True)
        cosines = [float((a * b).sum() / a.norm() / b.norm()) for a, b in zip(rx, ru, strict=True)]
        overlaps = [
            float((a * b).sum().abs() / a.norm() / b.norm()) for a, b in zip(x, u, strict=True)
        ]
        where = {"layer": 2, "point": name}
        got = [
            r for r in record.select("collapse.alignment", **where) if r.site.sublayer == sublayer
        ]
        assert [r.value for r in got] == pytest.approx([min(cosines)], rel=1e-9)
        assert value(record, "collapse.overlap", "max", **where) == pytest.approx(max(overlaps))


def test_the_gain_of_a_connection_is_part_of_the_weights() -> None:
    plain = ll.measure(network(), ids(), probes="collapse")
    scaled = ll.measure(network(connection="multiplier(value=0.25)"), ids(), probes="collapse")
    for quantity in ("value_output_1", "value_output_inf"):
        first, second = (
            value(record, f"collapse.{quantity}", "value", head=2, layer=1)
            for record in (plain, scaled)
        )
        assert second == pytest.approx(0.25 * first, rel=1e-5)
    for quantity in ("value_gain", "lipschitz"):
        first, second = (
            value(record, f"collapse.{quantity}", "value", layer=1) for record in (plain, scaled)
        )
        assert second == pytest.approx(0.25 * first, rel=1e-5)
    queries = [value(r, "collapse.query_key", "value", head=2, layer=1) for r in (plain, scaled)]
    assert queries[0] == pytest.approx(queries[1])


# --- what has no such number -----------------------------------------------------------------------


def test_rotary_positions_leave_gamma_and_the_law_out_and_say_so() -> None:
    record = ll.measure(network(positions="rotary"), ids(), probes="collapse")
    assert set(record.quantities) >= OF_HEADS - {
        "collapse.gamma",
        "collapse.joint_gamma",
        "collapse.cubic_law",
    }
    assert "collapse.gamma" not in record.quantities
    for name in ("collapse.gamma", "collapse.joint_gamma", "collapse.cubic_law"):
        assert "rotary positions" in refused(record)[name]
    (entry, *_) = record.provenance["coverage"]["refused"]
    assert entry["what"].endswith("of the attention of the decoder, layers 1 to 2") or entry[
        "what"
    ].endswith("of the attention of the encoder, layers 1 to 2")


def test_a_gated_mlp_has_no_lipschitz_constant_and_the_coverage_says_so() -> None:
    record = ll.measure(network(mlp="swiglu"), ids(), probes="collapse")
    assert "collapse.lipschitz" not in record.quantities
    assert "gated" in refused(record)["collapse.lipschitz"]


@pytest.mark.parametrize("norms", ["head", "width"])
def test_norms_on_queries_and_keys_are_named(norms: str) -> None:
    record = ll.measure(network({"qk_norm": norms}), ids(), probes="collapse")
    why = refused(record)
    assert "norm stands on its queries" in why["collapse.query_key"]
    assert "norm stands on its queries" in why["collapse.gamma"]
    assert "collapse.value_gain" in record.quantities


@pytest.mark.parametrize(
    ("settings", "what", "why"),
    [
        ({"placement": "sandwich"}, "collapse.value_gain", "not what is written"),
        ({"placement": "sandwich"}, "collapse.lipschitz", "no single product"),
        ({"placement": "subln"}, "collapse.value_gain", "stands between"),
        ({"connection": "layerscale"}, "collapse.value_gain", "not what is written"),
        (
            {"attention": {"name": "multihead", "value_residual": 0.5}},
            "collapse.value_gain",
            "values come from was not found",
        ),
    ],
)
def test_what_stands_in_between_is_named(settings: dict[str, Any], what: str, why: str) -> None:
    attention = settings.pop("attention", None) if "attention" in settings else None
    record = ll.measure(network(attention, **settings), ids(), probes="collapse")
    assert why in refused(record)[what]
    # What does not depend on it is still there.
    assert {"collapse.query_key", "collapse.gamma", "collapse.alignment"} <= set(record.quantities)


def test_a_position_bias_and_a_soft_cap_bend_the_logits() -> None:
    class Bent(nn.Module):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.way = way
            self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                one(x).unflatten(-1, (2, 4)).transpose(1, 2)
                for one in (self.query, self.key, self.value)
            )
            scores = q @ k.mT / 2
            if self.way == "bias":
                places = torch.arange(x.shape[1])
                scores = scores - 0.1 * (places[:, None] - places).abs()
            elif self.way == "cap":
                scores = torch.tanh(scores / 3) * 3
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.attention = Bent(way)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.attention(x)

    class Stacked(nn.Module):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(way) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    plain = ll.measure(Stacked("plain"), x, probes="collapse")
    assert set(plain.quantities) >= OF_HEADS
    for way, why in (("bias", "position bias"), ("cap", "soft cap")):
        record = ll.measure(Stacked(way), x, probes="collapse")
        assert (
            why in refused(record)["collapse.gamma"]
            and why in refused(record)["collapse.cubic_law"]
        )
        assert "collapse.value_gain" in record.quantities


def test_torchs_own_encoder_is_seen() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=False)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    record = ll.measure(model, x, probes="collapse")
    assert set(record.quantities) >= OF_HEADS | {"collapse.lipschitz"}
    first: Any = model.layers[0]
    q, k, v = (w.detach().double().T for w in first.self_attn.in_proj_weight.chunk(3))
    o = first.self_attn.out_proj.weight.detach().double().T
    assert value(record, "collapse.query_key", "value", head=2, layer=1) == pytest.approx(
        float((q[:, 4:] @ k[:, 4:].T).abs().sum(0).max()), rel=1e-6
    )
    assert value(record, "collapse.value_output_inf", "value", head=1, layer=1) == pytest.approx(
        float((v[:, :4] @ o[:4]).abs().sum(1).max()), rel=1e-6
    )


def test_the_model_and_its_outputs_are_left_as_they_are() -> None:
    model = network()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        plain = model(ids())
    outputs: list[Tensor] = []
    handle = model.register_forward_hook(lambda _m, _a, output: outputs.append(output.detach()))
    ll.measure(model, ids(), probes="collapse,residual")
    handle.remove()
    assert torch.equal(outputs[-1], plain)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_padding_changes_nothing() -> None:
    model = network(**ALONE)
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[1, 4:] = 0
    both = ll.measure(model, {"input_ids": ids(), "attention_mask": mask}, probes="collapse")
    alone = [
        ll.measure(model, ids()[:1], probes="collapse"),
        ll.measure(model, ids()[1:, :4], probes="collapse"),
    ]
    for quantity, statistic, reduce in (
        ("joint_gamma", "max", max),
        ("cubic_law", "max", max),
        ("overlap", "max", max),
        ("alignment", "min", min),
    ):
        name = f"collapse.{quantity}"
        exact = reduce(value(record, name, statistic, layer=2) for record in alone)
        assert value(both, name, statistic, layer=2) == pytest.approx(exact, rel=1e-4)
    for head in range(1, HEADS + 1):
        exact = max(value(r, "collapse.diagonal", "max", head=head, layer=2) for r in alone)
        assert value(both, "collapse.diagonal", "max", head=head, layer=2) == pytest.approx(
            exact, rel=1e-4
        )


def test_one_token_has_weights_and_no_differences() -> None:
    record = ll.measure(network(**ALONE), ids(2, 1), probes="collapse")
    assert {"collapse.query_key", "collapse.value_gain"} <= set(record.quantities)
    assert "collapse.gamma" not in record.quantities
    assert not [r for r in record.select() if not math.isfinite(r.value)]


def test_a_model_without_attention_still_has_its_mlps() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.up, self.down = MeanAttention(0.5), nn.Linear(6, 9), nn.Linear(9, 6)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.mean(x)
            return x + self.down(F.relu(self.up(x)))

    model = nn.Sequential(*(Layer() for _ in range(3)))
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    record = ll.measure(model, x, probes="collapse")
    assert set(record.quantities) == {
        "collapse.lipschitz",
        "collapse.alignment",
        "collapse.overlap",
    }
    (only,) = record.provenance["coverage"]["refused"]
    assert only["what"].startswith("attention of the encoder")


def test_the_record_says_what_the_logits_are_scaled_by() -> None:
    record = ll.measure(network({"scale": 0.3}), ids(), probes="collapse")
    assert [one["scaling"] for one in record.provenance["attention"]] == [0.3, 0.3]
