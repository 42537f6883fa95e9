"""Models broken on purpose: each refusal says what is wrong, where, and what to do about it."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import leadline
from leadline.anatomy import read_anatomy, refuse_imbalance
from leadline.errors import AnatomyError, BalanceError

Formula = Callable[["_Parts", Tensor], Tensor]

DEPTH = 4


class _Parts:
    """Attention and MLP of one Hugging Face block, behind their norms or without them."""

    def __init__(self, block: Any, options: dict[str, Any]) -> None:
        self.block, self.options = block, options
        self.gpt2 = hasattr(block, "ln_1")

    def norm1(self, x: Tensor) -> Tensor:
        return (self.block.ln_1 if self.gpt2 else self.block.input_layernorm)(x)

    def norm2(self, x: Tensor) -> Tensor:
        return (self.block.ln_2 if self.gpt2 else self.block.post_attention_layernorm)(x)

    def attend(self, x: Tensor) -> Tensor:
        if self.gpt2:
            return self.block.attn(x, attention_mask=self.options.get("attention_mask"))[0]
        return self.block.self_attn(hidden_states=x, **self.options)[0]

    def attention(self, x: Tensor) -> Tensor:
        return self.attend(self.norm1(x))

    def mlp(self, x: Tensor) -> Tensor:
        return self.block.mlp(self.norm2(x))


def _model(kind: str, depth: int = DEPTH) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                n_layer=depth,
                n_embd=32,
                n_head=4,
                vocab_size=100,
                n_positions=64,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    return LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=depth,
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=4,
            vocab_size=100,
            max_position_embeddings=64,
        )
    )


def _broken(formula: Formula, *layers: int, kind: str = "gpt2", depth: int = DEPTH) -> nn.Module:
    """A model whose given layers, counted from 1, compute the formula instead of their own."""
    model = _model(kind, depth)

    def forward(self: nn.Module, hidden_states: Tensor, *_: Any, **options: Any) -> Tensor:
        return formula(_Parts(self, options), hidden_states)

    blocks = model.transformer.h if kind == "gpt2" else model.model.layers
    for layer in layers:
        blocks[layer - 1].forward = types.MethodType(forward, blocks[layer - 1])
    return model


def _path(layer: int, kind: str) -> str:
    return f"transformer.h.{layer - 1}" if kind == "gpt2" else f"model.layers.{layer - 1}"


def _refusal(model: nn.Module, **options: Any) -> str:
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=3)
    with pytest.raises(AnatomyError) as caught:
        leadline.anatomy_of(model, inputs, **options)
    return str(caught.value)


def _unusual(model: nn.Module, **options: Any) -> tuple[str, ...]:
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=3)
    return leadline.anatomy_of(model, inputs, **options).unusual


# --- a missing skip connection ---------------------------------------------------------------


def _no_attention_skip(p: _Parts, x: Tensor) -> Tensor:
    x = p.attention(x)
    return x + p.mlp(x)


def _no_mlp_skip(p: _Parts, x: Tensor) -> Tensor:
    return p.mlp(x + p.attention(x))


def _no_skip(p: _Parts, x: Tensor) -> Tensor:
    return p.mlp(p.attention(x))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize("formula", [_no_mlp_skip, _no_skip])
def test_a_layer_without_the_skip_of_its_mlp_is_diagnosed(
    formula: Formula, layer: int, kind: str
) -> None:
    path = _path(layer, kind)
    block = "GPT2Block" if kind == "gpt2" else "LlamaDecoderLayer"
    assert _refusal(_broken(formula, layer, kind=kind)) == (
        f"The books do not balance. In decoder layer {layer} ('{path}') the output is what "
        f"'{path}.mlp' returned, without the stream that entered: its skip connection is missing. "
        f"The other 3 layers add to the stream. Look at the forward of {block}."
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layer", [1, 3])
def test_a_layer_without_the_skip_of_its_attention_is_diagnosed(layer: int, kind: str) -> None:
    path = _path(layer, kind)
    attention = f"{path}.{'attn' if kind == 'gpt2' else 'self_attn'}"
    message = _refusal(_broken(_no_attention_skip, layer, kind=kind))
    assert f"In decoder layer {layer} ('{path}') the output is what" in message
    assert f"what '{attention}' and '{path}.mlp' returned, added up, without the stream" in message


def test_where_no_layer_has_a_skip_the_words_are_the_same() -> None:
    message = _refusal(_broken(_no_mlp_skip, 1, 2, 3, 4))
    assert (
        "In layer 1 ('transformer.h.0') the output is what 'transformer.h.0.mlp' returned, without "
        "the stream that entered: its skip connection is missing. The same is true of all other "
        "layers. Look at the forward of GPT2Block."
    ) in message
    assert "declare" not in message


def test_of_two_layers_either_is_named() -> None:
    for layer in (1, 2):
        message = _refusal(_broken(_no_mlp_skip, layer, depth=2))
        assert f"layer {layer} ('transformer.h.{layer - 1}') the output is what" in message


def test_two_broken_layers_are_both_named() -> None:
    message = _refusal(_broken(_no_mlp_skip, 2, 4))
    assert "The same is true of layer" in message
    assert "The other 2 layers add to the stream." in message


@pytest.mark.parametrize("layers", [(2,), (1, 2, 3, 4)])
@pytest.mark.parametrize("training", [False, True])
def test_a_missing_skip_is_not_blamed_on_training_mode(
    layers: tuple[int, ...], training: bool
) -> None:
    model = _broken(_no_mlp_skip, *layers).train(training)
    assert "eval" not in _refusal(model)
    assert "eval" not in _refusal(
        model, anatomy=leadline.declare(blocks="transformer.h", writes=["attn", "mlp"])
    )


class _Inner(nn.Module):
    """A module without children that adds the stream inside."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + (x.cumsum(1) @ self.weight).tanh() * x.sigmoid()


class _Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_module_that_may_add_the_stream_inside_is_not_accused() -> None:
    model = nn.Sequential(nn.Sequential(_Outer(), _Outer(), _Outer()))
    with pytest.raises(AnatomyError) as caught:
        leadline.anatomy_of(model, torch.randn(2, 6, 8))
    assert "unless '0.0.inner' adds the stream inside" in str(caught.value)
    assert str(caught.value).count("leadline.declare(") == 1


class _NormedTwice(nn.Module):
    """Post-norm with another norm behind it, as in FastSpeech 2's conformer."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.first, self.second = _Inner(), nn.LayerNorm(8), nn.RMSNorm(8)
        self.first.weight.data.uniform_(0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x + self.mix(x)))


def test_a_norm_of_a_sum_that_holds_the_stream_is_not_accused() -> None:
    model = nn.Sequential(nn.Sequential(*(_NormedTwice() for _ in range(3))))
    with pytest.raises(AnatomyError) as caught:
        leadline.anatomy_of(model, torch.randn(2, 6, 8))
    assert "skip connection is missing" not in str(caught.value)


# --- the stream alone, and chance ------------------------------------------------------------


def _doubled_and_unwritten(p: _Parts, x: Tensor) -> Tensor:
    p.mlp(p.attention(x))
    return x + x


@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize("formula", [lambda p, x: x + x, _doubled_and_unwritten])
def test_a_layer_that_only_doubles_its_stream_is_refused_with_the_factor(
    formula: Formula, layer: int
) -> None:
    message = _refusal(_broken(formula, layer))
    assert (
        f"In decoder layer {layer} ('transformer.h.{layer - 1}') the output is 2 x the stream that "
        "entered: nothing is written."
    ) in message


def test_where_every_layer_only_doubles_its_stream_no_factor_of_a_branch_is_made_up() -> None:
    model = _broken(_doubled_and_unwritten, 1, 2, 3, 4)
    for options in ({}, {"anatomy": DECLARED}):
        message = _refusal(model, **options)
        assert "the output is 2 x the stream that entered: nothing is written." in message
        assert "The same is true of all other layers." in message
        assert "gains=" not in message and "would balance" not in message


def _dropping(p: _Parts, x: Tensor) -> Tensor:
    x = x + p.attention(x)
    return x + nn.functional.dropout(p.mlp(x), 0.2)


@pytest.mark.parametrize("layers", [(2,), (1, 2, 3, 4)])
def test_dropout_that_eval_mode_does_not_switch_off_is_named_as_such(
    layers: tuple[int, ...],
) -> None:
    message = _refusal(_broken(_dropping, *layers))
    assert "two runs on the same input give different outputs" in message
    assert "training=self.training" in message
    assert "model.eval()" not in message


def test_eval_mode_is_advised_where_training_mode_draws_at_random() -> None:
    def dropping(p: _Parts, x: Tensor) -> Tensor:
        x = x + p.attention(x)
        return x + nn.functional.dropout(p.mlp(x), 0.2, training=p.block.training)

    model = _broken(dropping, 2, kind="llama").train()
    ids = leadline.random_tokens(model, examples=2, length=12).tensors["input_ids"]
    with pytest.raises(BalanceError, match=r"training mode: call model\.eval\(\) first"):
        read_anatomy(model, lambda: model(ids), lambda: model(ids))
    assert _unusual(model) == ()


# --- updates that rounding or a gate hides -----------------------------------------------------


def test_updates_below_the_rounding_of_the_stream_are_not_blamed_on_the_forward() -> None:
    from transformers import BlipVisionConfig, BlipVisionModel

    torch.manual_seed(0)
    # Its default initializer_range is 1e-10.
    model: Any = BlipVisionModel(
        BlipVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=16,
            patch_size=4,
        )
    )
    pixels = torch.randn(2, 3, 16, 16)
    with pytest.raises(AnatomyError) as caught:
        leadline.anatomy_of(model, pixels)
    message = str(caught.value)
    sizes: dict[nn.Module, float] = {}

    def weigh(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        sizes[module] = float(tensor.double().norm())

    for block in model.encoder.layers:
        for module in (block, block.self_attn, block.mlp):
            module.register_forward_hook(weigh)
    with torch.no_grad():
        model(pixels)
    # The stream leaves every layer as it entered.
    shares = [max(sizes[b.self_attn], sizes[b.mlp]) / sizes[b] for b in model.encoder.layers]
    said = re.search(r"\(the largest is (\S+) of the stream\)", message)
    assert said is not None and float(said[1]) == pytest.approx(max(shares), rel=0.3)
    assert message.replace(said[0], "(...)").partition("') ")[2] == (
        "the output is the stream that entered: its updates are smaller than rounding (...). The "
        "same is true of all other layers. The weights may have been drawn with a tiny std, or "
        "scaled down: measure trained weights, or draw them larger (initializer_range=0.02 in the "
        "configuration, or in the part of it that belongs to these layers)."
    )


class _Gated(nn.Module):
    def __init__(self, gate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.attention, self.mlp, self.gate = _Inner(), nn.Linear(8, 8), gate
        self.alpha = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gate(self.alpha) * self.attention(x)
        return x + self.gate(self.alpha) * self.mlp(x)


class _Silent(nn.Module):
    """Calls none of its modules; the bias of its norm is zero, as that of any new norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def test_a_bias_that_is_zero_is_no_gate() -> None:
    model = nn.Sequential(nn.Sequential(*(_Silent() for _ in range(3))))
    with pytest.raises(AnatomyError, match="nothing is written") as caught:
        leadline.anatomy_of(model, torch.randn(2, 6, 8))
    assert "gate" not in str(caught.value)
    assert "Look at the forward of _Silent" in str(caught.value)


@pytest.mark.parametrize(("dtype", "helps"), [("float32", True), ("float64", False)])
def test_a_small_miss_is_sent_to_float64_unless_it_is_there(dtype: str, helps: bool) -> None:
    model = _model("gpt2").eval().to(getattr(torch, dtype))
    ids = torch.randint(0, 100, (2, 8), generator=torch.Generator().manual_seed(0))
    anatomy = leadline.anatomy_of(model, ids)
    assert anatomy.balance is not None
    missed = replace(anatomy.balance, eps=6.0)
    assert missed.dtype == dtype
    with pytest.raises(BalanceError, match="So small a miss may be rounding") as caught:
        refuse_imbalance(model, anatomy, missed, lambda: model(ids))
    assert ("measure in float64" in str(caught.value)) is helps


@pytest.mark.parametrize("gate", [torch.tanh, lambda a: 0.5 * a])
def test_a_gate_that_starts_at_zero_is_named(gate: Callable[[Tensor], Tensor]) -> None:
    model = nn.Sequential(nn.Sequential(*(_Gated(gate) for _ in range(3))))
    with pytest.raises(AnatomyError) as caught:
        leadline.anatomy_of(model, torch.randn(2, 6, 8))
    message = str(caught.value)
    assert re.search(
        r"the parameter '0\.\d\.alpha' is exactly 0 and may be the gate that closes it", message
    )
    assert "after a step of training" in message
    assert "Look at the forward" not in message
    assert "The same is true of all other layers." in message
    with torch.no_grad():
        for block in model[0]:
            block.alpha.fill_(0.1)  # pyright: ignore
    assert leadline.anatomy_of(model, torch.randn(2, 6, 8)).balance is not None


# --- with a declaration ----------------------------------------------------------------------

DECLARED = leadline.declare(blocks="transformer.h", writes=["attn", "mlp"])


@pytest.mark.parametrize("layers", [(3,), (1, 2, 3, 4)])
def test_a_declaration_is_not_answered_with_the_modules_that_it_names(
    layers: tuple[int, ...],
) -> None:
    message = _refusal(_broken(_no_mlp_skip, *layers), anatomy=DECLARED)
    assert message.startswith("The books of the declared anatomy do not balance.")
    assert "x <- x + attn, then x <- x + mlp misses the output" in message
    assert ".mlp' returned, without the stream that entered: its skip" in message
    assert "would balance" not in message


def _halved(p: _Parts, x: Tensor) -> Tensor:
    x = x + 0.5 * p.attention(x)
    return 2 * x + p.mlp(x)


def test_other_factors_are_said_as_they_are_declared() -> None:
    message = _refusal(_broken(_halved, 1, 2, 3, 4), anatomy=DECLARED)
    assert "the same modules would balance" in message
    assert "as x <- x + 0.5 attn, then x <- 2 x + mlp." in message
    advice = "Declare writes=['attn', 'mlp'], gains=[0.5, 1.0], keeps=[1.0, 2.0]."
    assert message.endswith(advice)
    right = leadline.declare(
        blocks="transformer.h", writes=["attn", "mlp"], gains=[0.5, 1.0], keeps=[1.0, 2.0]
    )
    assert _unusual(_broken(_halved, 1, 2, 3, 4), anatomy=right) == ()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_norms_of_a_declared_anatomy_are_read_like_those_of_any_other(kind: str) -> None:
    path, attention = ("transformer.h", "attn") if kind == "gpt2" else ("model.layers", "self_attn")
    model = _model(kind)
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=3)
    declared = leadline.declare(blocks=path, writes=[attention, "mlp"])
    assert {
        b.placement for b in leadline.anatomy_of(model, inputs, anatomy=declared).stacks[0].blocks
    } == {"pre"}


def _gated_by_its_mean(p: _Parts, x: Tensor) -> Tensor:
    x = x + p.attention(x)
    return x * torch.sigmoid(10 * x.mean()) + p.mlp(x)


@pytest.mark.parametrize("layers", [(2,), (1, 2, 3, 4)])
def test_what_balances_only_on_the_inputs_it_was_fitted_to_is_not_said_to_balance(
    layers: tuple[int, ...],
) -> None:
    message = _refusal(_broken(_gated_by_its_mean, *layers), anatomy=DECLARED)
    assert "would balance" not in message
    assert message.endswith("Discovery finds nothing that balances there either.")


def test_one_odd_layer_is_left_to_discovery() -> None:
    message = _refusal(_broken(_halved, 2), anatomy=DECLARED)
    assert "layer 2 ('transformer.h.1'): x <- x + attn" in message
    assert "The other 3 layers balance as declared; without a declaration" in message
    assert len(_unusual(_broken(_halved, 2))) == 2


def test_a_declared_write_that_never_happens_is_refused() -> None:
    message = _refusal(_broken(lambda p, x: x + p.mlp(x), 1, 2, 3, 4), anatomy=DECLARED)
    assert "'attn' was declared to write to the stream, but it does not run" in message


# --- what balances is said in words ----------------------------------------------------------


def _doubled_skip(p: _Parts, x: Tensor) -> Tensor:
    x = x + x + p.attention(x)
    return x + p.mlp(x)


def _doubled_update(p: _Parts, x: Tensor) -> Tensor:
    x = x + p.attention(x)
    update = p.mlp(x)
    return x + update + update


def _doubled_stream(p: _Parts, x: Tensor) -> Tensor:
    x = x + p.attention(x)
    x = x + p.mlp(x)
    return x + x


def _normed_skip(p: _Parts, x: Tensor) -> Tensor:
    normed = p.norm1(x)
    x = normed + p.attend(normed)
    return x + p.mlp(x)


def _normed_skip_of_the_mlp(p: _Parts, x: Tensor) -> Tensor:
    x = x + p.attention(x)
    normed = p.norm2(x)
    return normed + p.block.mlp(normed)


def _both_skips_normed(p: _Parts, x: Tensor) -> Tensor:
    normed = p.norm1(x)
    normed = p.norm2(normed + p.attend(normed))
    return normed + p.block.mlp(normed)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_norms_on_the_skips_of_every_layer_are_said(kind: str) -> None:
    first, second = ("ln_1", "ln_2") if kind == "gpt2" else _LLAMA_NORMS
    assert _unusual(_broken(_normed_skip_of_the_mlp, 1, 2, 3, 4, kind=kind)) == (
        f"The skip past 'mlp' goes through '{second}' in every layer.",
    )
    assert _unusual(_broken(_both_skips_normed, 1, 2, 3, 4, kind=kind)) == (
        f"The skip of every layer goes through '{first}', past 'mlp' through '{second}': "
        f"x becomes {first}(x) before anything is added to it.",
    )


_LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")


def _wrong_residual(p: _Parts, x: Tensor) -> Tensor:
    middle = x + p.attention(x)
    return x + p.mlp(middle)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        (
            _doubled_skip,
            "Layer {n} keeps 2 x the stream where '{attn}' writes (the skip is added twice); the "
            "other layers keep 1 x.",
        ),
        (
            _doubled_update,
            "Layer {n} adds 2 x what 'mlp' returns (the update is added twice); the other layers "
            "add 1 x.",
        ),
        (
            _doubled_stream,
            "Layer {n} multiplies the stream by 2 after 'mlp' has written; the other layers "
            "multiply it by 1.",
        ),
        (
            _normed_skip,
            "The skip of layer {n} goes through '{norm}': x becomes {norm}(x) before anything is "
            "added to it; in the other layers it does not.",
        ),
        (
            _wrong_residual,
            "In layer {n} '{attn}' writes nothing; in {others} it does.",
        ),
        (
            lambda p, x: x + p.mlp(x),
            "In layer {n} '{attn}' writes nothing; in {others} it does.",
        ),
        (
            lambda p, x: x + p.attention(x),
            "In layer {n} 'mlp' writes nothing; in {others} it does.",
        ),
        (
            lambda p, x: x.clone(),
            "In layer {n} nothing is written: the stream leaves as it entered.",
        ),
    ],
)
def test_an_unusual_layer_is_measured_and_said(
    formula: Formula, sentence: str, layer: int, kind: str
) -> None:
    names = {"attn": "attn", "norm": "ln_1"}
    if kind == "llama":
        names = {"attn": "self_attn", "norm": "input_layernorm"}
    names["others"] = {1: "layers 2 to 4", 3: "layers 1, 2 and 4"}[layer]
    assert _unusual(_broken(formula, layer, kind=kind)) == (sentence.format(n=layer, **names),)


def test_the_same_in_every_layer_is_one_sentence() -> None:
    every = (1, 2, 3, 4)
    (skip,) = _unusual(_broken(_doubled_skip, *every))
    assert skip.startswith("Every layer keeps 2 x the stream where 'attn' writes")
    (norm,) = _unusual(_broken(_normed_skip, *every))
    assert norm.startswith("The skip of every layer goes through 'ln_1'")


def test_an_update_of_exactly_zero_is_said() -> None:
    model = _model("gpt2")
    with torch.no_grad():
        for parameter in model.transformer.h[2].mlp.c_proj.parameters():
            parameter.zero_()
    assert _unusual(model) == ("What 'mlp' adds to the stream is exactly 0 in layer 3.",)


@pytest.mark.parametrize("formula", [lambda p, x: x + p.mlp(x), lambda p, x: x.clone()])
def test_writes_that_do_not_happen_are_not_counted(formula: Formula) -> None:
    model = _broken(formula, 2)
    inputs = leadline.random_tokens(model, examples=2, length=12, seed=3)
    record = leadline.measure(model, inputs)
    writes = [len(layer["sublayers"]) for layer in record.provenance["anatomy"]["layers"]]
    expected = 1 if "mlp" in {r.site.point for r in record.select("update.norm", layer=2)} else 0
    assert writes == [2, expected, 2, 2]
    assert {r.site.point for r in record.select("update.norm", layer=1)} == {"attention", "mlp"}


# --- a miss that may be rounding -------------------------------------------------------------


@pytest.mark.parametrize(("units", "advice"), [(80, "model.double()"), (125, "leadline.declare(")])
def test_float64_is_advised_where_the_miss_is_at_most_a_hundred_units_of_rounding(
    units: int, advice: str
) -> None:
    """Layer 3 adds a vector that no module returns, of so many eps of every token's length."""

    def formula(p: _Parts, x: Tensor) -> Tensor:
        x = x + p.attention(x)
        y = x + p.mlp(x)
        length = units * torch.finfo(torch.float32).eps * y.norm(dim=-1, keepdim=True)
        return y + length * nn.functional.normalize(torch.sin(1e4 * y), dim=-1)

    message = _refusal(_broken(formula, 3))
    # Rounding of the sums themselves adds about one.
    miss = re.search(r"([\d.]+) eps; at most 4 are rounding", message)
    assert miss is not None and float(miss[1]) == pytest.approx(units, abs=3)
    others = {"model.double()", "leadline.declare("} - {advice}
    assert advice in message and not any(other in message for other in others)
