"""Measuring: what is recorded is what a hand-written script finds, and the model is left alone."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy
from leadline.errors import AnatomyError, InputError, ProbeError
from leadline.record import Site
from leadline.testing.tiny import Linear
from leadline.testing.zoo import ZOO


def _specimen(name: str, seed: int = 1) -> tuple[nn.Module, dict[str, Any]]:
    model = ZOO[name].build(0)
    return model, dict(ZOO[name].inputs(model, seed))


def _gpt2(depth: int = 3) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=depth,
        n_embd=32,
        n_head=4,
        vocab_size=100,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


# --- against a script written by hand ----------------------------------------------------------


def test_stream_norms_equal_hidden_states_by_hand() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=16, seed=3)
    record = leadline.measure(model, inputs)
    raw: list[torch.Tensor] = []
    hooks = [model.transformer.h[0].register_forward_pre_hook(lambda m, a: raw.append(a[0]))]
    hooks += [
        b.register_forward_hook(lambda m, a, o: raw.append(_first(o))) for b in model.transformer.h
    ]
    with torch.no_grad():
        model(**inputs.tensors)
    for hook in hooks:
        hook.remove()
    norms = [x.double().norm(dim=-1) for x in raw]
    by_layer = record.by_layer("stream.norm", statistic="mean")
    assert by_layer.layers == (0, 1, 2, 3)
    assert list(by_layer.values) == pytest.approx([float(n.mean()) for n in norms], rel=1e-5)
    medians = record.by_layer("stream.norm", statistic="median_without_first")
    expected = [float(n[:, 1:].flatten().sort().values[14:16].mean()) for n in norms]
    assert list(medians.values) == pytest.approx(expected, rel=1e-5)


def _first(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]


def test_updates_are_those_of_the_modules() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=16, seed=3)
    record = leadline.measure(model, inputs)
    attention: list[torch.Tensor] = []
    entering: list[torch.Tensor] = []
    hooks = [
        *(
            b.attn.register_forward_hook(lambda m, a, o: attention.append(_first(o)))
            for b in model.transformer.h
        ),
        *(
            b.register_forward_pre_hook(lambda m, a: entering.append(a[0]))
            for b in model.transformer.h
        ),
    ]
    with torch.no_grad():
        model(**inputs.tensors)
    for hook in hooks:
        hook.remove()
    for index, (update, stream) in enumerate(zip(attention, entering, strict=True)):
        u, x = update.double(), stream.double()
        site = Site("decoder", index + 1, 1, "attention")
        found = {
            r.quantity: r.value
            for r in record.select(layer=index + 1, sublayer=1, statistic="mean")
            if r.site == site
        }
        assert found["update.norm"] == pytest.approx(float(u.norm(dim=-1).mean()), rel=1e-5)
        ratio = (u.norm(dim=-1) / x.norm(dim=-1)).mean()
        assert found["update.ratio"] == pytest.approx(float(ratio), rel=1e-5)
        cosine = torch.nn.functional.cosine_similarity(u, x, dim=-1).mean()
        assert found["update.cosine"] == pytest.approx(float(cosine), abs=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert", "gptj", "gemma2", "olmo2", "granite"])
def test_gradients_equal_those_of_retained_tensors(name: str) -> None:
    model, tensors = _specimen(name)
    model.eval()
    record = leadline.measure(model, tensors, loss="random", seed=5)
    anatomy = leadline.anatomy_of(model, tensors)
    kept: list[torch.Tensor] = []
    updates: dict[str, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> None:
        tensor.retain_grad()
        kept.append(tensor)

    blocks = anatomy.stacks[0].blocks
    hooks = [
        model.get_submodule(blocks[0].module).register_forward_pre_hook(
            lambda m, a, k: keep(a[0] if a else k["hidden_states"]), with_kwargs=True
        )
    ]
    for block in blocks:
        hooks.append(
            model.get_submodule(block.module).register_forward_hook(lambda m, a, o: keep(_first(o)))
        )
    from leadline.instruments.passes.running import call
    from leadline.models.inputs import as_inputs, choose_loss

    batch = as_inputs(tensors, model)
    chosen, batch = choose_loss(model, batch, "random", seed=5)
    chosen.compute(call(model, batch), batch).backward()
    for hook in hooks:
        hook.remove()
    expected = [float(t.grad.double().norm()) for t in kept]  # pyright: ignore
    mask = tensors.get("attention_mask")
    if mask is not None and not bool(mask.bool().all()):
        expected = [float((t.grad * mask[..., None]).double().norm()) for t in kept]  # pyright: ignore
    found = record.by_layer("gradient.stream", statistic="total")
    assert list(found.values) == pytest.approx(expected, rel=1e-5)
    parameters = dict(model.named_parameters())
    for block in blocks:
        for s in block.sublayers:
            total = math.sqrt(
                sum(float(parameters[p].grad.double().square().sum()) for p in s.parameters)
            )  # pyright: ignore
            rows = record.select("gradient.parameters", layer=block.layer, sublayer=s.sublayer)
            assert [r.value for r in rows] == pytest.approx([total], rel=1e-5)
    del updates


def test_the_gradient_between_two_writes_is_that_of_the_middle_stream() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=1)
    record = leadline.measure(model, inputs)
    middle: list[torch.Tensor] = []

    def keep(m: nn.Module, a: tuple[torch.Tensor, ...]) -> None:
        a[0].retain_grad()
        middle.append(a[0])

    hooks = [b.ln_2.register_forward_pre_hook(keep) for b in model.transformer.h]
    ids = inputs.tensors["input_ids"]
    model(input_ids=ids, labels=ids).loss.backward()
    for hook in hooks:
        hook.remove()
    for index, tensor in enumerate(middle):
        rows = record.select("gradient.stream", statistic="total", layer=index + 1, sublayer=1)
        assert rows[0].value == pytest.approx(float(tensor.grad.double().norm()), rel=1e-5)  # pyright: ignore


def test_a_model_with_answers_known_by_hand() -> None:
    alpha, beta, depth = 0.5, -0.25, 4
    model = Linear(depth, alpha=alpha, beta=beta)
    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    mean, spread = x.mean(1, keepdim=True), x - x.mean(1, keepdim=True)
    record = leadline.measure(
        model,
        x,
        anatomy=leadline.declare(blocks="layers", writes=["attention", "mlp"]),
        loss=lambda output, inputs: output.sum(),
    )
    grown, shrunk = (1 + alpha) * (1 + beta), 1 + beta
    for layer in range(depth + 1):
        stream = grown**layer * mean + shrunk**layer * spread
        (norm,) = record.select("stream.norm", layer=layer, statistic="mean", sublayer=None)
        assert norm.value == pytest.approx(float(stream.norm(dim=-1).mean()), rel=1e-5)
        (residual,) = record.select("tokens.residual", layer=layer, statistic="mean", sublayer=None)
        by_hand = shrunk**layer * float(spread.flatten(1).norm(dim=1).mean())
        assert residual.value == pytest.approx(by_hand, rel=1e-5)
        # The gradient of the sum is all ones at the output; it lies along the mean.
        (gradient,) = record.select(
            "gradient.stream", layer=layer, statistic="total", sublayer=None
        )
        assert gradient.value == pytest.approx(grown ** (depth - layer) * math.sqrt(60), rel=1e-5)


def test_a_stream_changed_in_place_between_blocks_is_read_anew() -> None:
    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Linear(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.inner.layers:
                x = layer(x)
                x *= 2
            return x

    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    anatomy = leadline.declare(blocks="inner.layers", writes=["attention", "mlp"])
    record = leadline.measure(Doubling(), x, anatomy=anatomy, probes="stream,update")
    first, second = (
        record.select("update.norm", layer=layer, sublayer=2, statistic="mean")[0].value
        for layer in (1, 2)
    )
    mean, spread = x.mean(1, keepdim=True), x - x.mean(1, keepdim=True)
    after = 2 * (1.5 * 0.75 * mean + 0.75 * spread)
    # What the second layer's MLP reads: its mean grown by the attention, then a quarter of it.
    read = 1.5 * after.mean(1, keepdim=True) + (after - after.mean(1, keepdim=True))
    assert second == pytest.approx(0.25 * float(read.norm(dim=-1).mean()), rel=1e-5)
    assert second > 1.5 * first
    ratio = record.select("update.ratio", layer=2, sublayer=1, statistic="mean")[0].value
    share = 0.5 * after.mean(1, keepdim=True).norm(dim=-1) / after.norm(dim=-1)
    assert ratio == pytest.approx(float(share.mean()), rel=1e-5)


def test_padding_changes_nothing() -> None:
    model = _gpt2().eval()
    ids = leadline.random_tokens(model, examples=2, length=12, seed=1).tensors["input_ids"]
    alone = leadline.measure(
        model,
        {"input_ids": ids},
        loss="random",
        probes="stream,tokens,rank,update,influence,memory",
    )
    padded = {
        "input_ids": torch.cat([ids, torch.full((2, 5), 7)], dim=1),
        "attention_mask": torch.cat([torch.ones(2, 12), torch.zeros(2, 5)], dim=1).long(),
    }
    both = leadline.measure(
        model, padded, loss="random", probes="stream,tokens,rank,update,influence,memory"
    )
    first = {(r.quantity, r.site, r.statistic): r.value for r in alone.select()}
    second = {(r.quantity, r.site, r.statistic): r.value for r in both.select()}
    assert set(first) == set(second)
    for key, value in first.items():
        assert second[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key


# --- no trace ----------------------------------------------------------------------------------


def _fingerprint(model: nn.Module) -> dict[str, Any]:
    def hooks(module: nn.Module) -> tuple[int, ...]:
        return (
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            len(module._backward_hooks),
            len(module._backward_pre_hooks),
        )

    return {
        "parameters": [
            (n, p.detach().clone(), p.requires_grad, p.data_ptr())
            for n, p in model.named_parameters()
        ],
        "gradients": [
            None if p.grad is None else (id(p.grad), p.grad.clone()) for p in model.parameters()
        ],
        "buffers": [(n, b.clone()) for n, b in model.named_buffers()],
        "training": [m.training for m in model.modules()],
        "hooks": [hooks(m) for m in model.modules()],
        "accumulated": [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()],
        "rng": torch.random.get_rng_state(),
        "config": copy.deepcopy(model.config.to_dict()) if hasattr(model, "config") else None,
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
    }


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    return bool(first == second)


def _prepared(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in the middle of training: dropout on, gradients there, one weight frozen."""
    model, tensors = _specimen(name)
    model.train()
    next(iter(model.children())).eval()
    for index, parameter in enumerate(model.parameters()):
        if index == 1:
            parameter.requires_grad_(False)
        elif index % 2:
            parameter.grad = torch.full_like(parameter, 0.5)
    return model, tensors


@pytest.mark.parametrize(
    "name", ["gpt2", "bert", "t5", "vit", "mixtral", "gemma4_text", "albert", "xlm"]
)
def test_measuring_leaves_no_trace(name: str) -> None:
    model, tensors = _prepared(name)
    before = _fingerprint(model)
    leadline.measure(model, tensors, ablate="sublayer")
    after = _fingerprint(model)
    for key in before:
        assert _same(before[key], after[key]), key


@pytest.mark.parametrize("when", ["forward", "backward", "loss"])
def test_an_exception_in_the_middle_leaves_no_trace(when: str) -> None:
    model, tensors = _prepared("gpt2")
    before = _fingerprint(model)
    block = model.get_submodule("transformer.h.1")
    state = {"armed": False}
    original = type(block).forward

    def broken(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        if state["armed"] and when == "forward":
            raise RuntimeError("in the middle")
        return output

    def loss(output: Any, inputs: Any) -> torch.Tensor:
        state["armed"] = True
        if when == "loss":
            raise RuntimeError("in the middle")
        value = output.logits.square().mean()
        if when == "backward":
            value.register_hook(_raise)
        return value

    block.forward = broken.__get__(block)
    try:
        if when == "forward":
            # The block is armed by the first measurement's loss and breaks the second one.
            leadline.measure(model, tensors, loss=loss)
        with pytest.raises(RuntimeError, match="in the middle"):
            leadline.measure(model, tensors, loss=loss)
    finally:
        del block.forward
    after = _fingerprint(model)
    for key in before:
        assert _same(before[key], after[key]), key


def _raise(gradient: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("in the middle")


def test_reading_the_anatomy_leaves_no_trace() -> None:
    model, tensors = _prepared("llama")
    before = _fingerprint(model)
    leadline.anatomy_of(model, tensors)
    assert all(_same(before[key], value) for key, value in _fingerprint(model).items())


def test_the_same_measurement_twice_gives_the_same_numbers() -> None:
    model, tensors = _specimen("llama")
    first, second = (leadline.measure(model, tensors) for _ in range(2))
    assert [(r.quantity, r.site, r.value) for r in first.select()] == [
        (r.quantity, r.site, r.value) for r in second.select()
    ]


# --- kinds of models ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "t5",
        "whisper",
        "clip",
        "vit",
        "wav2vec2",
        "deepseek_v4",
        "mamba",
        "albert",
        "bert",
        "xlnet",
        "swin",
    ],
)
def test_every_kind_of_model_is_measured_end_to_end(name: str) -> None:
    model, tensors = _specimen(name)
    record = leadline.measure(model, tensors)
    assert not record.findings
    for stack in record.stacks:
        depth = record.depth(stack)
        for quantity in ("stream.norm", "tokens.relative_residual", "gradient.stream"):
            profile = record.by_layer(quantity, stack=stack)
            assert profile.layers == tuple(range(depth + 1))
            assert all(math.isfinite(v) for v in profile.values)
    assert record.provenance["anatomy"]["balance_eps"] <= 4
    assert record.provenance["passes"]["forward"] == record.provenance["passes"]["backward"] == 1


def test_lanes_are_measured_one_by_one() -> None:
    model, tensors = _specimen("deepseek_v4")
    record = leadline.measure(model, tensors)
    lanes = record.provenance["anatomy"]["stacks"]["decoder"]["lanes"]
    rows = record.select("lane.norm", layer=1, statistic="mean")
    assert [r.site.lane for r in rows] == list(range(1, lanes + 1))
    whole = record.select("stream.norm", layer=0, statistic="mean", sublayer=None)[0].value
    parts = [r.value for r in record.select("lane.norm", layer=0, statistic="mean")]
    # At the entrance all lanes are copies of the embedding.
    assert whole == pytest.approx(math.sqrt(sum(p * p for p in parts)), rel=1e-4)
    assert record.select("lane.cosine", layer=0, statistic="mean")[0].value == pytest.approx(1.0)


def test_shared_weights_have_no_gradient_of_their_own_and_the_record_says_so() -> None:
    model, tensors = _specimen("albert")
    record = leadline.measure(model, tensors)
    assert "gradient.parameters" not in record.quantities
    assert any(
        "serves several layers" in r["why"] for r in record.provenance["coverage"]["refused"]
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_are_measured_and_named(dtype: torch.dtype) -> None:
    model = _gpt2().to(dtype)
    record = leadline.measure(model, leadline.random_tokens(model, examples=2, length=8))
    assert record.provenance["model"]["dtype"] == str(dtype).removeprefix("torch.")
    assert record.provenance["anatomy"]["balance_eps"] <= 4
    single = leadline.measure(_gpt2(), leadline.random_tokens(model, examples=2, length=8))
    assert list(record["stream.norm"].values) == pytest.approx(
        list(single["stream.norm"].values), rel=2e-2
    )


# torch.compile itself looks at the .grad of a tensor that is no leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("way", ["wrapped", "in place", "one block"])
def test_compiled_models_are_measured_uncompiled(way: str) -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    plain = leadline.measure(model, inputs)
    compiled: nn.Module = model
    if way == "wrapped":
        compiled = torch.compile(model, backend="aot_eager")  # pyright: ignore
    elif way == "in place":
        model.compile(backend="aot_eager")
    else:
        model.transformer.h[1] = torch.compile(model.transformer.h[1], backend="aot_eager")
    compiled(**inputs.tensors)
    record = leadline.measure(compiled, inputs)
    assert list(record["stream.norm"].values) == list(plain["stream.norm"].values)
    assert record.provenance["model"]["mode"].startswith("eval")


def test_a_frozen_model_still_has_gradients_at_the_stream() -> None:
    model = _gpt2().requires_grad_(False)
    record = leadline.measure(model, leadline.random_tokens(model, examples=2, length=8))
    assert record["gradient.stream"].layers == (0, 1, 2, 3)
    assert all(v > 0 for v in record["gradient.stream"].values)
    assert any("requires_grad" in r["why"] for r in record.provenance["coverage"]["refused"])


# --- losses, probes, ablation ------------------------------------------------------------------


def test_the_loss_is_the_models_own_where_it_has_one() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=1)
    ids = inputs.tensors["input_ids"]
    with torch.no_grad():
        expected = float(model(input_ids=ids, labels=ids).loss)
    record = leadline.measure(model, inputs)
    assert record.provenance["loss"]["kind"] == "next-token"
    assert record.provenance["loss"]["value"] == pytest.approx(expected, rel=1e-5)


def test_without_the_gradient_probe_there_is_no_backward_pass() -> None:
    model = _gpt2()
    record = leadline.measure(
        model, leadline.random_tokens(model, examples=2, length=8), probes="stream"
    )
    assert record.provenance["passes"]["backward"] == 0
    assert set(record.quantities) == {"stream.norm", "stream.mean", "stream.variance"}


def test_ablation_equals_removing_the_block_by_hand() -> None:
    model = _gpt2(4).eval()
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=1)
    record = leadline.measure(model, inputs, ablate="block")
    ids = inputs.tensors["input_ids"]

    def loss(layers: list[int]) -> float:
        shorter = copy.deepcopy(model)
        shorter.transformer.h = nn.ModuleList(shorter.transformer.h[i] for i in layers)
        with torch.no_grad():
            return float(shorter(input_ids=ids, labels=ids).loss)

    whole = loss([0, 1, 2, 3])
    for layer in range(1, 5):
        rest = [i for i in range(4) if i != layer - 1]
        (row,) = record.select("ablation.block", layer=layer)
        assert row.value == pytest.approx(loss(rest) - whole, abs=1e-5)
    assert record.provenance["passes"]["ablation_forward"] == 5


def test_ablating_a_sublayer_equals_zeroing_its_output_weights() -> None:
    model = _gpt2(3).eval()
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=1)
    record = leadline.measure(model, inputs, ablate="sublayer")
    ids = inputs.tensors["input_ids"]
    with torch.no_grad():
        whole = float(model(input_ids=ids, labels=ids).loss)
    for layer in range(3):
        for number, branch in ((1, "attn"), (2, "mlp")):
            other = copy.deepcopy(model)
            projection = getattr(other.transformer.h[layer], branch).c_proj
            with torch.no_grad():
                projection.weight.zero_()
                projection.bias.zero_()
                expected = float(other(input_ids=ids, labels=ids).loss) - whole
            (row,) = record.select("ablation.sublayer", layer=layer + 1, sublayer=number)
            assert row.value == pytest.approx(expected, abs=1e-5)


def test_leaving_out_any_one_of_equal_layers_is_the_same() -> None:
    model, tensors = _specimen("albert")
    record = leadline.measure(model, tensors, ablate="block")
    values = [r.value for r in record.select("ablation.block")]
    # Four calls of one module: whichever is left out, three remain.
    assert values == [values[0]] * 4
    assert values[0] != 0


def test_ablation_asks_for_a_block_or_a_sublayer() -> None:
    with pytest.raises(ProbeError, match="ablate is 'head'; give 'block' or 'sublayer'"):
        leadline.measure(_gpt2(), ablate="head")


def test_recall_is_measured_when_asked_for() -> None:
    model = _gpt2()
    inputs = leadline.random_tokens(model, examples=4, length=32)
    record = leadline.measure(model, inputs, probes=["recall(ridge=0.01)"])
    profile = record["memory.r2"]
    assert profile.values[0] > 0.9
    assert profile.layers == (0, 1, 2, 3)


def test_the_callers_gradient_mode_does_not_matter() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    plain = leadline.measure(model, inputs)
    with torch.no_grad():
        first = leadline.measure(model, inputs)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        second = leadline.measure(model, inputs)
    for record in (first, second):
        assert list(record["gradient.stream"].values) == list(plain["gradient.stream"].values)


def test_padding_on_either_side_gives_the_same_gradients() -> None:
    model = _gpt2().eval()
    ids = leadline.random_tokens(model, examples=2, length=9, seed=1).tensors["input_ids"]
    filler, ones, zeros = torch.full((2, 4), 5), torch.ones(2, 9).long(), torch.zeros(2, 4).long()
    right = {
        "input_ids": torch.cat([ids, filler], 1),
        "attention_mask": torch.cat([ones, zeros], 1),
        "position_ids": torch.arange(13).expand(2, -1),
    }
    left = {
        "input_ids": torch.cat([filler, ids], 1),
        "attention_mask": torch.cat([zeros, ones], 1),
        "position_ids": (torch.arange(13) - 4).clamp_min(0).expand(2, -1),
    }
    alone = leadline.measure(model, {"input_ids": ids})
    for tensors in (right, left):
        record = leadline.measure(model, tensors)
        assert record.provenance["loss"]["value"] == pytest.approx(
            alone.provenance["loss"]["value"], rel=1e-5
        )
        for row in alone.select():
            (same,) = [
                r
                for r in record.select(row.quantity, statistic=row.statistic, layer=row.site.layer)
                if r.site == row.site
            ]
            assert same.value == pytest.approx(row.value, rel=2e-4, abs=1e-6), row


def test_two_tokens_are_measured_without_a_false_alarm() -> None:
    model = _gpt2()
    record = leadline.measure(model, leadline.random_tokens(model, examples=2, length=2))
    assert not record.findings
    assert "tokens.cosine" in record.quantities


def test_rows_of_unequal_length_are_padded_inside_the_vocabulary() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    # The default end-of-text id of GPT-2 lies outside this vocabulary.
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50))
    record = leadline.measure(model, [[1, 2, 3, 4], [5, 6]])
    assert record.provenance["input"]["padded"] == 2


# --- bad input ---------------------------------------------------------------------------------


def test_broken_weights_are_reported_with_the_first_site_they_reach() -> None:
    model = _gpt2(4)
    with torch.no_grad():
        model.transformer.h[2].mlp.c_fc.weight[0, 0] = float("nan")
    with pytest.raises(AnatomyError) as caught:
        leadline.measure(model, leadline.random_tokens(model, examples=2, length=8))
    message = str(caught.value)
    assert "transformer.h.2.mlp.c_fc.weight" in message
    assert "decoder layer 3" in message


def test_broken_embeddings_are_reported_too() -> None:
    model = _gpt2()
    with torch.no_grad():
        model.transformer.wpe.weight.fill_(float("inf"))
    with pytest.raises(AnatomyError) as caught:
        leadline.measure(model, leadline.random_tokens(model, examples=2, length=8))
    assert "'transformer.wpe.weight' holds values that are not finite" in str(caught.value)
    assert "first appear in what 'transformer.wpe' returns" in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_buffer_is_named_like_a_broken_parameter(value: float) -> None:
    model, tensors = _specimen("llama")
    model.model.rotary_emb.inv_freq[1] = value
    for ask in (leadline.measure, leadline.anatomy_of):
        with pytest.raises(AnatomyError) as caught:
            ask(model, tensors)
        message = str(caught.value)
        count = model.model.rotary_emb.inv_freq.numel()
        assert message.startswith(
            f"The buffer 'model.rotary_emb.inv_freq' holds values that are not finite (1 of {count})"
        )
        assert "first appear in what 'model.rotary_emb' returns" in message


class _Positioned(nn.Module):
    """The toy of known answers behind a table of positions, kept as a buffer or as an attribute."""

    def __init__(self, table: torch.Tensor, *, registered: bool) -> None:
        super().__init__()
        self.inner = Linear(3)
        if registered:
            self.register_buffer("table", table, persistent=False)
        else:
            self.table = table
        # A mask that nothing reads: minus infinity is what masks are made of.
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + self.table)


@pytest.mark.parametrize(("registered", "kind"), [(True, "buffer"), (False, "tensor")])
def test_tables_that_are_no_parameters_are_named_too(registered: bool, kind: str) -> None:
    table = torch.zeros(4, 8)
    table[2, 3] = float("nan")
    model = _Positioned(table, registered=registered)
    with pytest.raises(AnatomyError, match=rf"The {kind} 'table' .* not finite \(1 of 32\)"):
        leadline.anatomy_of(model, torch.randn(2, 4, 8))


def test_an_infinite_mask_is_not_taken_for_a_broken_buffer() -> None:
    model = _Positioned(torch.zeros(4, 8), registered=True)
    with torch.no_grad():
        model.inner.layers[1].mlp.beta.fill_(1e38)
    wrong = leadline.declare(blocks="inner.layers", writes=["attention"])
    with pytest.raises(AnatomyError, match=r"^What 'inner\.layers\.1\.mlp' returns is not finite"):
        leadline.anatomy_of(model, 1e30 * torch.randn(2, 4, 8), anatomy=wrong)


def test_one_block_alone_is_refused_with_the_reason() -> None:
    with pytest.raises(AnatomyError, match="at least two are needed"):
        leadline.measure(_gpt2(1))


def test_a_declared_write_of_another_width_is_refused() -> None:
    wrong = leadline.declare(blocks="transformer.h", writes=["attn", "mlp.c_fc"])
    with pytest.raises(AnatomyError, match=r"c_fc' returns \[.*128\] and the stream is \[.*32\]"):
        leadline.measure(_gpt2(), anatomy=wrong)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="attention_mask has the shape"):
        leadline.measure(
            _gpt2(),
            {"input_ids": torch.ones(2, 8).long(), "attention_mask": torch.ones(2, 5).long()},
        )


@pytest.mark.parametrize("ridge", ["x", -1, 0, True])
def test_a_ridge_that_is_none_is_refused(ridge: object) -> None:
    with pytest.raises(ProbeError, match="ridge"):
        leadline.measure(_gpt2(), probes=[leadline.Choice("recall", ridge=ridge)])


def test_a_stream_that_overflows_is_measured_and_is_a_finding() -> None:
    class Exploding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1e30 * self.mix(x.mean(1, keepdim=True).expand_as(x) + x)

    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Exploding() for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    record = leadline.measure(
        Tower(),
        torch.randn(2, 5, 8),
        probes="stream",
        anatomy=leadline.declare(blocks="layers", writes=["mix"], gains=[1e30]),
    )
    (finding,) = record.findings
    assert finding.severity == "serious"
    assert finding.site == Site("encoder", 2)
    assert not math.isfinite(record.select("stream.norm", layer=4, statistic="mean")[0].value)


def test_inputs_that_are_not_finite_are_refused() -> None:
    model, tensors = _specimen("vit")
    tensors["pixel_values"] = tensors["pixel_values"] * float("nan")
    with pytest.raises(InputError, match="pixel_values"):
        leadline.measure(model, tensors)


def test_an_unknown_probe_is_answered_with_the_nearest() -> None:
    with pytest.raises(leadline.UnknownName, match="Did you mean 'stream'"):
        leadline.measure(_gpt2(), probes="strem")


def test_a_probe_asked_for_twice_is_refused() -> None:
    with pytest.raises(ProbeError, match="twice"):
        leadline.measure(_gpt2(), probes="stream,stream")


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(InputError, match="The model is 'gpt2', not a torch module"):
        leadline.measure("gpt2")  # pyright: ignore


def test_progress_is_told() -> None:
    model = _gpt2()
    heard: list[tuple[str, int, int]] = []
    leadline.measure(model, ablate="block", progress=lambda *step: heard.append(step))
    assert heard[0][0] == "reading the anatomy"
    assert heard[-1] == ("done", 3, 3)
    assert any("leaving out" in what for what, *_ in heard)


def test_a_proved_anatomy_is_not_read_again() -> None:
    model = _gpt2()
    inputs = leadline.random_tokens(model, examples=2, length=8)
    anatomy = leadline.anatomy_of(model, inputs)
    assert isinstance(anatomy, Anatomy)
    record = leadline.measure(model, inputs, anatomy=anatomy)
    assert record.provenance["passes"] == {"forward": 1, "backward": 1, "anatomy_forward": 0}


@pytest.mark.inductor
# Inductor imports parts of torch that torch itself calls old.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_model_compiled_by_inductor_is_measured() -> None:
    model = _gpt2().eval()
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    plain = leadline.measure(model, inputs)
    compiled = torch.compile(model)
    with torch.no_grad():
        compiled(**inputs.tensors)
    record = leadline.measure(compiled, inputs)  # pyright: ignore
    assert list(record["stream.norm"].values) == list(plain["stream.norm"].values)
    assert record.provenance["model"]["mode"] == "eval, uncompiled"
