"""Ingredients of collapse bounds of Hugging Face models, against weights read by their names.

Our probe asks for no name: it finds weights by values. Here they are read where each model's code
keeps them, and every number is computed again from them and from what enters the projections.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import leadline as ll
from leadline.anatomy.tensors import first_tensor
from leadline.instruments.passes.running import call
from leadline.models.inputs import as_inputs
from leadline.record import Record
from leadline.testing.zoo import ZOO
from leadline.theory.rank_collapse.lipschitz import lip

Head = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
LAYER = 2


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def split(q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray, heads: int) -> list[Head]:
    """[width, heads x size] matrices into heads; keys and values may serve several."""
    size = q.shape[1] // heads
    share = heads // (k.shape[1] // size)
    return [
        (
            q[:, h * size : (h + 1) * size],
            k[:, h // share * size : (h // share + 1) * size],
            v[:, h // share * size : (h // share + 1) * size],
            o[h * size : (h + 1) * size],
        )
        for h in range(heads)
    ]


def gpt2(model: Any) -> tuple[Any, list[Head], tuple[str, np.ndarray, np.ndarray] | None]:
    block = model.transformer.h[LAYER - 1]
    q, k, v = np.split(numbers(block.attn.c_attn.weight), 3, axis=1)
    heads = split(q, k, v, numbers(block.attn.c_proj.weight), 4)
    return block.attn, heads, (
        "gelu_tanh", numbers(block.mlp.c_fc.weight), numbers(block.mlp.c_proj.weight),
    )  # fmt: skip


def bert(model: Any) -> tuple[Any, list[Head], tuple[str, np.ndarray, np.ndarray] | None]:
    block = model.bert.encoder.layer[LAYER - 1]
    own = block.attention.self
    q, k, v = (numbers(one.weight).T for one in (own.query, own.key, own.value))
    heads = split(q, k, v, numbers(block.attention.output.dense.weight).T, 4)
    up, down = block.intermediate.dense, block.output.dense
    return own, heads, ("gelu", numbers(up.weight).T, numbers(down.weight).T)


def opt(model: Any) -> tuple[Any, list[Head], tuple[str, np.ndarray, np.ndarray] | None]:
    block = model.model.decoder.layers[LAYER - 1]
    own = block.self_attn
    q, k, v, o = (numbers(p.weight).T for p in (own.q_proj, own.k_proj, own.v_proj, own.out_proj))
    return own, split(q, k, v, o, 4), (
        "relu", numbers(block.fc1.weight).T, numbers(block.fc2.weight).T,
    )  # fmt: skip


def llama(model: Any) -> tuple[Any, list[Head], tuple[str, np.ndarray, np.ndarray] | None]:
    own = model.model.layers[LAYER - 1].self_attn
    q, k, v, o = (numbers(p.weight).T for p in (own.q_proj, own.k_proj, own.v_proj, own.o_proj))
    return own, split(q, k, v, o, 4), None


def gpt_neox(model: Any) -> tuple[Any, list[Head], tuple[str, np.ndarray, np.ndarray] | None]:
    block = model.gpt_neox.layers[LAYER - 1]
    own = block.attention
    # [head, (query, key, value), size, width]
    joint = numbers(own.query_key_value.weight).reshape(4, 3, 16, 64)
    q, k, v = (joint[:, part].reshape(64, 64).T for part in range(3))
    heads = split(q, k, v, numbers(own.dense.weight).T, 4)
    up, down = block.mlp.dense_h_to_4h, block.mlp.dense_4h_to_h
    return own, heads, ("gelu", numbers(up.weight).T, numbers(down.weight).T)


READ: dict[str, Callable[[Any], Any]] = {
    "gpt2": gpt2, "bert": bert, "opt": opt, "llama": llama, "gpt_neox": gpt_neox,
}  # fmt: skip
TURNED = {"llama", "gpt_neox"}
SETTINGS = [(name, dtype) for name in READ for dtype in (torch.float32, torch.float64)]


@functools.cache
def measured(name: str, dtype: torch.dtype) -> tuple[Any, dict[str, Tensor], Record]:
    model = ZOO[name].build(0).to(dtype)
    given = dict(ZOO[name].inputs(model, 1))
    return model, given, ll.measure(model, given, probes="collapse")


def entering(model: Any, module: Any, given: dict[str, Tensor]) -> np.ndarray:
    """[example, token, width]: what enters the attention module."""
    found: list[Tensor] = []

    def keep(_: Any, args: Any, kwargs: Any) -> None:
        found.append(args[0] if args else kwargs["hidden_states"])

    handle = module.register_forward_pre_hook(keep, with_kwargs=True)
    with torch.no_grad():
        call(model, as_inputs(given, model))
    handle.remove()
    return numbers(found[0])


def value(record: Record, name: str, statistic: str, head: int | None = None) -> float:
    found = record.select(f"collapse.{name}", layer=LAYER, statistic=statistic)
    (reading,) = [r for r in found if r.site.head == head]
    return reading.value


def tolerance(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 1e-6


@pytest.mark.parametrize(("name", "dtype"), SETTINGS)
def test_sizes_of_the_weights(name: str, dtype: torch.dtype) -> None:
    model, _, record = measured(name, dtype)
    _, heads, mlp = READ[name](model)
    close = tolerance(dtype)
    # OPT multiplies its queries by 1/sqrt(size) itself and scales by 1 then.
    (scaling,) = {one["scaling"] for one in record.provenance["attention"]}
    for h, (q, k, v, o) in enumerate(heads, start=1):
        exact = np.abs(q @ k.T).sum(0).max() / math.sqrt(q.shape[1])
        found = scaling * value(record, "query_key", "value", h)
        assert found == pytest.approx(exact, rel=close)
        exact = np.abs(v @ o).sum(0).max()
        assert value(record, "value_output_1", "value", h) == pytest.approx(exact, rel=close)
        exact = np.abs(v @ o).sum(1).max()
        assert value(record, "value_output_inf", "value", h) == pytest.approx(exact, rel=close)
    whole = np.linalg.norm(sum(v @ o for _, _, v, o in heads), 2)
    assert value(record, "value_gain", "value") == pytest.approx(whole, rel=close)
    if mlp is not None:
        act, up, down = mlp
        exact = lip(act)
        for one in (up, down):
            exact *= math.sqrt(np.abs(one).sum(0).max() * np.abs(one).sum(1).max())
        assert value(record, "lipschitz", "value") == pytest.approx(exact, rel=close)


@pytest.mark.parametrize(("name", "dtype"), [s for s in SETTINGS if s[0] not in TURNED])
def test_gamma_and_the_law_from_what_enters(name: str, dtype: torch.dtype) -> None:
    model, given, record = measured(name, dtype)
    module, heads, _ = READ[name](model)
    close = 1e-4 if dtype == torch.float32 else 1e-6
    each, joint, laws = [], [], []
    for z in entering(model, module, given):
        r = z - z.mean(0)
        forms = [r @ q @ k.T @ r.T / math.sqrt(q.shape[1]) for q, k, _, _ in heads]
        osc = [form.max(1) - form.min(1) for form in forms]
        sizes = [np.abs(form).sum(0).max() for form in forms]
        each.append(
            [math.sqrt(o.sum() * o.max()) / (2 * s) for o, s in zip(osc, sizes, strict=True)]
        )
        sums, tops = sum(o.sum() for o in osc), sum(o.max() for o in osc)
        joint.append(math.sqrt(sums * tops) / (2 * sum(sizes)))
        law = sum(form @ r @ v @ o for form, (_, _, v, o) in zip(forms, heads, strict=True))
        laws.append(math.log10(np.linalg.norm(law) / len(z)))
    for h, exact in enumerate(np.max(each, axis=0), start=1):
        assert value(record, "gamma", "max", h) == pytest.approx(exact, rel=close)
    assert value(record, "joint_gamma", "max") == pytest.approx(max(joint), rel=close)
    assert value(record, "cubic_law", "max") == pytest.approx(max(laws), abs=close)


@pytest.mark.parametrize("name", sorted(TURNED))
def test_rotary_models_have_no_gamma_and_say_why(name: str) -> None:
    record = measured(name, torch.float32)[2]
    assert not {"collapse.gamma", "collapse.cubic_law"} & set(record.quantities)
    told = [one for one in record.provenance["coverage"]["refused"] if "gamma" in one["what"]]
    assert len(told) == 1 and "rotary" in told[0]["why"]
    assert told[0]["what"].endswith("of the attention of the decoder, layers 1 to 3")


@pytest.mark.parametrize("name", list(READ))
def test_the_diagonal_is_that_of_the_weights_hugging_face_returns(name: str) -> None:
    model, given, record = measured(name, torch.float32)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(**given, output_attentions=True).attentions[LAYER - 1]
    model.set_attn_implementation("sdpa")
    exact = weights.diagonal(dim1=-2, dim2=-1)[..., 1:].amax((0, 2))
    for h, one in enumerate(exact.tolist(), start=1):
        assert value(record, "diagonal", "max", h) == pytest.approx(one, rel=1e-5)


FOUND = {
    "distilbert": "gelu", "roberta": "gelu", "gpt_neo": "gelu_tanh", "bart": "gelu",
    "openai-gpt": "gelu_tanh", "vit": "gelu", "whisper": "gelu", "xlm": "gelu", "gpt_bigcode": "gelu_tanh",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FOUND))
def test_everything_is_found_in_models_without_positions_in_their_logits(name: str) -> None:
    record = measured(name, torch.float32)[2]
    expected = {
        f"collapse.{quantity}"
        for quantity in (
            "query_key", "value_output_1", "value_output_inf", "value_gain", "gamma", "joint_gamma",
            "diagonal", "cubic_law", "lipschitz", "alignment", "overlap",
        )
    }  # fmt: skip
    assert set(record.quantities) == expected
    why = {one["why"] for one in record.provenance["coverage"]["refused"]}
    assert why <= {"its keys and values are another sequence's"}
    assert not record.findings


@pytest.mark.parametrize(
    ("name", "quantity", "why"),
    [
        ("t5", "collapse.gamma", "position bias"),
        ("bloom", "collapse.gamma", "position bias"),
        ("mixtral", "collapse.lipschitz", "no single product"),
        ("llama", "collapse.lipschitz", "gated"),
        ("qwen3", "collapse.query_key", "a norm stands on its queries"),
        ("gemma2", "collapse.value_gain", "not what is written"),
        ("diffllama", "collapse.diagonal", "several calls"),
        ("deepseek_v3", "collapse.query_key", "keys come from was not found"),
        ("nemotron", "collapse.lipschitz", "no pair of linear maps with a known activation"),
    ],
)
def test_what_has_no_such_number_says_why(name: str, quantity: str, why: str) -> None:
    record = measured(name, torch.float32)[2]
    assert quantity not in record.quantities
    told = [
        one["why"] for one in record.provenance["coverage"]["refused"] if quantity in one["what"]
    ]
    assert told and any(why in one for one in told), told


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "opt", "t5", "vit"])
def test_outputs_are_the_same_to_the_bit_and_nothing_stays(name: str) -> None:
    model = ZOO[name].build(0)
    given = dict(ZOO[name].inputs(model, 1))
    with torch.no_grad():
        plain = first_tensor(call(model, as_inputs(given, model)))
    outputs: list[Tensor | None] = []
    handle = model.register_forward_hook(
        lambda _m, _a, output: outputs.append(first_tensor(output))
    )
    state = torch.random.get_rng_state()
    ll.measure(model, given, probes="collapse")
    handle.remove()
    assert plain is not None and outputs[-1] is not None
    assert torch.equal(plain, outputs[-1])
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
