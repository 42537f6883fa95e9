"""The passes: what is fitted on, which gradients are computed, and what is let go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import untouched
from leadline.anatomy.find.trace import trace_calls
from leadline.instruments.passes import probe_plan as _plan
from leadline.instruments.passes.probe_plan import plan
from leadline.instruments.passes.running import _narrowed, call, few_threads, fit_batch, read, run
from leadline.models.inputs import Inputs, as_inputs, choose_loss
from leadline.models.inputs.for_model import batch_for
from leadline.testing.zoo import ZOO

WIDTH = 8


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.norm1(x).mean(1, keepdim=True).expand_as(x)
        x = x + self.attention(mixed)
        return x + self.mlp(self.norm2(x))


class _Tower(nn.Module):
    """An embedding, three blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(_Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def _stream(seed: int = 0) -> torch.Tensor:
    return torch.randn(4, 6, WIDTH, generator=torch.Generator().manual_seed(seed))


def _loss(output: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return output.square().sum()


# --- what the anatomy is fitted on -------------------------------------------------------------


def test_the_fit_gets_two_short_random_examples_that_the_judge_never_sees() -> None:
    model = ZOO["gpt2"].build(0).eval()

    def fitted(batch: Inputs) -> torch.Tensor:
        return fit_batch(model, batch, 0, lambda which: call(model, which)).main

    examples, length = fitted(batch_for(model, None, 0)).shape
    assert (examples, length) == (2, min(32, model.config.n_positions))  # pyright: ignore
    # The same seed and shape, asked for by the user.
    given = leadline.random_tokens(model, examples=examples, length=length, seed=0)
    assert not torch.equal(fitted(given), given.main)


def test_where_random_inputs_do_not_fit_the_first_half_of_the_examples_is_taken() -> None:
    class Picky(_Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            if x.shape[1] != 6:
                raise ValueError("six tokens, please")
            return super().forward(x)

    model, x = Picky().eval(), _stream()
    small = fit_batch(model, as_inputs(x, model), 0, lambda which: call(model, which))
    assert torch.equal(small.main, x[:2])


def test_a_model_that_breaks_off_in_the_middle_of_random_inputs_is_read_on_its_own() -> None:
    class Picky(_Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            y = super().forward(x)
            if x.shape[1] != 6:
                raise ValueError("six tokens, please")
            return y

    model, x = Picky().eval(), _stream()
    anatomy, passes = read(model, as_inputs(x, model), declared=None, families=True, seed=0)
    plain, fewer = read(_Tower().eval(), as_inputs(x, model), declared=None, families=True, seed=0)
    assert anatomy.stacks == plain.stacks
    assert (passes, fewer) == (3, 2)


def test_blocks_that_are_made_in_the_first_pass_are_traced() -> None:
    class Late(_Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            if not hasattr(self, "late"):
                self.late = nn.Linear(WIDTH, WIDTH)
            return super().forward(self.late(x))

    model = Late().eval()
    calls = trace_calls(model, lambda: model(_stream()))
    assert [call.path for call in calls].count("late") == 1


def test_half_of_the_examples_is_half_of_every_tensor_that_counts_examples() -> None:
    five = Inputs(
        {
            "input_ids": torch.arange(10).view(5, 2),
            "positions": torch.arange(2),
            "scale": torch.tensor(3.0),
        }
    )
    half = _narrowed(five).tensors
    assert half["input_ids"].tolist() == [[0, 1], [2, 3]]
    assert half["positions"].tolist() == [0, 1]
    assert float(half["scale"]) == 3.0
    one = Inputs({"input_ids": torch.arange(3).view(1, 3)})
    assert _narrowed(one) is one


def test_half_of_the_examples_takes_its_own_patches_along() -> None:
    # Images of 1 x 2 x 1, 1 x 1 x 1 and 1 x 2 x 2 patches.
    grid = torch.tensor([[1, 2, 1], [1, 1, 1], [1, 2, 2]])
    three = Inputs(
        {
            "input_ids": torch.arange(6).view(3, 2),
            "pixel_values": torch.arange(7.0).view(7, 1),
            "image_grid_thw": grid,
        }
    )
    half = _narrowed(three).tensors
    assert half["image_grid_thw"].tolist() == [[1, 2, 1]]
    assert half["pixel_values"].flatten().tolist() == [0, 1]


def test_the_cache_is_switched_off() -> None:
    model = ZOO["gpt2"].build(0).eval()
    output = call(model, batch_for(model, None, 0))
    assert output.past_key_values is None


# --- which gradients are computed --------------------------------------------------------------


def _run(model: nn.Module, x: torch.Tensor, loss: Any = _loss) -> Any:
    batch = as_inputs(x, model)
    chosen, batch = choose_loss(model, batch, loss, seed=0)
    anatomy, _ = read(model, batch, declared=None, families=True, seed=0)
    return run(model, anatomy, plan("gradient"), batch, chosen)


def test_gradients_of_parameters_are_let_go() -> None:
    model = _Tower().eval()
    with untouched(model):
        _run(model, _stream())
        assert all(p.grad is None for p in model.parameters())


def test_gradients_that_no_probe_reads_are_not_computed() -> None:
    model = _Tower().eval()
    seen: dict[str, bool] = {}

    def loss(output: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        seen.update({name: p.requires_grad for name, p in model.named_parameters()})
        return output.square().sum()

    with untouched(model):
        _run(model, _stream(), loss)
    assert {name for name, on in seen.items() if on} == {
        name for name in seen if name.startswith("layers.")
    }


def test_a_frozen_weight_stays_frozen_and_is_left_out_of_the_norm() -> None:
    model, x = _Tower().eval(), _stream()
    model.layers[1].mlp[0].weight.requires_grad_(False)  # pyright: ignore
    record = leadline.measure(model, x, loss=_loss)
    _loss(model(x), None).backward()  # pyright: ignore
    block = model.layers[1]
    served = [
        *block.norm2.parameters(),  # pyright: ignore
        block.mlp[0].bias,  # pyright: ignore
        *block.mlp[2].parameters(),  # pyright: ignore
    ]
    expected = sum(float(p.grad.double().square().sum()) for p in served) ** 0.5
    (row,) = record.select("gradient.parameters", layer=2, sublayer=2)
    assert row.value == pytest.approx(expected, rel=1e-5)
    assert any(
        r["what"] == "gradient of 1 parameter tensors"
        for r in record.provenance["coverage"]["refused"]
    )


def test_a_probe_of_parameters_alone_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from leadline.instruments.passes.probes.gradient import PARAMETERS
    from leadline.instruments.passes.probes.gradient import GradientProbe as Whole

    class Alone:
        sees = ("parameters",)
        quantities = (PARAMETERS,)

        def parameters(self, at: Any, norm: torch.Tensor) -> Iterator[Any]:
            return Whole().parameters(at, norm)

    built = _plan.Plan((), (Alone(),))
    model, x = _Tower().eval(), _stream()
    batch = as_inputs(x, model)
    chosen, batch = choose_loss(model, batch, _loss, seed=0)
    with untouched(model):
        anatomy, _ = read(model, batch, declared=None, families=True, seed=0)
        done = run(model, anatomy, built, batch, chosen)
    found = {(r.site.layer, r.site.sublayer) for r in done.collector.readings()}
    assert found == {(layer, s) for layer in (1, 2, 3) for s in (1, 2)}


# --- what the record says of the whole ---------------------------------------------------------


def test_a_padding_mask_that_does_not_fit_is_told_in_the_coverage() -> None:
    class Longer(nn.Module):
        """Puts one more token before the others, as a class token."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = _Tower()

        def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.inner(torch.cat([x[:, :1], x], dim=1))

    mask = torch.ones(4, 6)
    mask[0, 3:] = 0
    record = leadline.measure(Longer(), {"x": _stream(), "attention_mask": mask}, probes="stream")
    whys = [r["why"] for r in record.provenance["coverage"]["refused"]]
    assert any("another shape" in why for why in whys)


def test_the_balance_in_the_record_is_that_of_the_measuring_pass() -> None:
    model = _Tower().eval()
    anatomy = leadline.anatomy_of(model, _stream(0))
    # Known to balance; measured on a stream of another precision, which the record must tell.
    model.double()
    record = leadline.measure(model, _stream(1).double(), anatomy=anatomy, loss=_loss)
    assert anatomy.balance is not None and anatomy.balance.dtype == "float32"
    assert record.provenance["anatomy"]["balance_dtype"] == "float64"


def test_an_anatomy_that_was_proved_elsewhere_is_judged_again() -> None:
    from dataclasses import replace

    model = _Tower().eval()
    proved = leadline.anatomy_of(model, _stream())
    (stack,) = proved.stacks
    wrong = tuple(
        replace(b, sublayers=tuple(replace(s, gain=0.5) for s in b.sublayers)) for b in stack.blocks
    )
    forged = replace(proved, stacks=(replace(stack, blocks=wrong),))
    with pytest.raises(leadline.BalanceError):
        leadline.measure(model, _stream(), anatomy=forged, loss=_loss)


def test_what_is_not_finite_is_found_where_it_begins() -> None:
    class Steep(torch.autograd.Function):
        """The identity, with a gradient that overflows."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            return torch.full_like(g, float("inf"))

    class Cliff(_Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.embedding(x)
            for number, layer in enumerate(self.layers):
                x = layer(Steep.apply(x) if number == 2 else x)
            return self.head(x)

    record = leadline.measure(
        Cliff(), _stream(), loss=_loss, anatomy=leadline.anatomy_of(_Tower(), _stream())
    )
    found = {f.quantity: f.site for f in record.findings}
    # The gradient of what leaves block 2 is infinite, and so is all below; the stream is sound.
    assert set(found) == {"gradient.stream", "gradient.parameters"}
    assert found["gradient.stream"].layer == 0 and found["gradient.parameters"].layer == 1
    finite = [
        r.value for r in record.select("gradient.stream", layer=3, statistic="total", sublayer=None)
    ]
    assert len(finite) == 1 and finite[0] < float("inf")


def test_an_infinite_mask_is_no_broken_input() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _Tower()

        def forward(self, x: torch.Tensor, bias_mask: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + bias_mask.softmax(-1).sum()

    bias = torch.zeros(4, 6)
    bias[:, 3:] = float("-inf")
    record = leadline.measure(Masked(), {"x": _stream(), "bias_mask": bias}, probes="stream")
    assert not record.findings


def test_frozen_parameters_are_told_only_where_their_gradients_are_asked_for() -> None:
    model = _Tower().requires_grad_(False)
    record = leadline.measure(model, _stream(), probes="stream")
    assert record.provenance["coverage"]["refused"] == []


def test_an_anatomy_without_a_balance_is_read_and_judged_first() -> None:
    from dataclasses import replace

    model = _Tower().eval()
    unproved = replace(leadline.anatomy_of(model, _stream()), balance=None)
    record = leadline.measure(model, _stream(), anatomy=unproved, probes="stream")
    # The judgement alone: nothing is fitted.
    assert record.provenance["passes"]["anatomy_forward"] == 1


@pytest.mark.parametrize(
    ("model_type", "tower", "lack"),
    [("llava_next", "model.vision_tower", "image"), ("qwen2_audio", "model.audio_tower", "sound")],
)
def test_a_tower_that_did_not_run_is_told_in_the_coverage(model_type, tower, lack) -> None:
    from leadline.testing.zoo.survey import build

    model = build(model_type)
    tokens = leadline.random_tokens(model, examples=2, length=12)
    refused = leadline.measure(model, tokens, probes="stream").provenance["coverage"]["refused"]
    # The projector behind a tower does not run either.
    assert refused == [
        {
            "what": f"{tower}, model.multi_modal_projector",
            "why": f"they did not run, because the inputs hold no {lack}",
        }
    ]


def test_a_part_that_is_never_called_is_told_and_a_layer_or_an_expert_is_not() -> None:
    class Forgetful(_Tower):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.ModuleList([nn.Sequential(nn.Linear(8, 8))])
            self.single = nn.Linear(8, 8)
            for layer in self.layers:
                layer.expert = nn.Sequential(nn.Linear(8, 8))

    record = leadline.measure(Forgetful(), _stream(), probes="stream")
    assert record.provenance["coverage"]["refused"] == [
        {
            "what": "spare",
            "why": "it did not run, because nothing in these inputs leads to it",
        }
    ]


def test_a_layer_that_stands_in_two_lists_ran_in_both() -> None:
    class Listed(_Tower):
        def __init__(self) -> None:
            super().__init__()
            self.pairs = nn.ModuleList([nn.ModuleList(self.layers)])

    record = leadline.measure(Listed(), _stream(), probes="stream")
    assert record.provenance["coverage"]["refused"] == []


def test_noting_which_modules_run_leaves_no_hook() -> None:
    model = _Tower()
    leadline.measure(model, _stream(), probes="stream")
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_an_argument_that_forward_needs_is_named_with_the_call_that_gives_it() -> None:
    class Seeing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 4)

        def forward(self, idx: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
            return self.table(idx) + image

    model = Seeing()
    with pytest.raises(leadline.InputError) as refusal:
        leadline.measure(model, leadline.random_tokens(model, examples=2, length=3))
    assert str(refusal.value) == (
        "Seeing.forward cannot be called with idx: missing a required argument: 'image'. Give it "
        "what it takes in Python, leadline.measure(model, {'idx': ids, 'image': tensor}); the "
        "command line can give tokens alone (--text, --tokens-file, --random 4x128)."
    )


def test_a_ratio_to_a_stream_of_zeros_is_a_finding_with_its_reason() -> None:
    stream = _stream()
    stream[0, 0] = 0
    model = _Tower()
    model.embedding = nn.Identity()
    record = leadline.measure(model, stream, probes="update")
    (finding,) = [f for f in record.findings if f.quantity == "update.ratio"]
    first = finding.site
    assert first is not None and first.layer == 1
    assert finding.verdict.startswith(
        f"update.ratio is not finite at {first}: the stream of a token is exactly 0 before this"
    )


@pytest.mark.parametrize("factor", [1e-30, 1e25])
def test_gradients_whose_squares_leave_float32_are_measured(factor: float) -> None:
    records = [
        leadline.measure(_Tower(), _stream(), loss=lambda o, i, f=f: f * o.sum())
        for f in (1.0, factor)
    ]
    plain, scaled = ([r.value for r in r_.select("gradient.stream")] for r_ in records)
    assert scaled == pytest.approx([factor * value for value in plain], rel=1e-4)


def test_an_infinite_number_is_a_finding_although_it_is_no_nan() -> None:
    # Finite gradients whose norm float32 cannot hold.
    record = leadline.measure(_Tower(), _stream(), loss=lambda o, i: 1.7e38 * o.sum())
    values = [r.value for r in record.select("gradient.stream", statistic="mean")]
    first = next(value for value in values if not math.isfinite(value))
    assert first == math.inf
    assert "gradient.stream" in {f.quantity for f in record.findings}


@pytest.mark.parametrize(("tokens", "expected"), [(255, [1, 2]), (256, [2])])
def test_small_work_gets_one_thread(
    monkeypatch: pytest.MonkeyPatch, tokens: int, expected: list[int]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    module = nn.Linear(1024, 1024, bias=False)
    with few_threads(module, Inputs({"input_ids": torch.zeros(1, tokens)})):
        pass
    assert asked == expected
