"""What a forward pass changes in a model is put back."""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import untouched

WIDTH = 8


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x.mean(1, keepdim=True).expand_as(x))
        return x + self.mlp(x)


class _Restless(nn.Module):
    """Counts its calls in one buffer, replaces another, draws numbers, drops out."""

    count: torch.Tensor
    last: torch.Tensor

    def __init__(self, drop: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Block() for _ in range(2))
        self.dropout = nn.Dropout(drop)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.last = x.detach()[0, 0]
        x = self.dropout(x) + 0 * torch.rand(1)
        for layer in self.layers:
            x = layer(x)
        return x


def _stream() -> torch.Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("entry", ["measure", "anatomy_of"])
def test_buffers_and_the_random_state_are_put_back(entry: str) -> None:
    model = _Restless().train()
    count, last = model.count, model.last
    torch.manual_seed(17)
    state = torch.random.get_rng_state()
    getattr(leadline, entry)(model, _stream())
    assert model.count is count and float(count) == 0.0
    assert model.last is last and not last.any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training and model.dropout.training


def test_a_model_in_training_is_measured_in_eval_mode() -> None:
    x = _stream()
    training = leadline.measure(_Restless().train(), x, probes="stream")
    plain = leadline.measure(_Restless(0.0).eval(), x, probes="stream")
    assert list(training["stream.norm"].values) == list(plain["stream.norm"].values)


def test_it_is_all_put_back_after_an_exception() -> None:
    model = _Restless().train()
    weight = model.layers[0].mlp.weight  # pyright: ignore
    weight.grad = kept = torch.ones_like(weight)

    def interrupted() -> None:
        with untouched(model):
            assert not model.training
            assert weight.grad is None
            model(_stream())
            weight.requires_grad_(False)
            weight.grad = torch.zeros_like(weight)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        interrupted()
    assert model.training and float(model.count) == 0.0
    assert weight.requires_grad and weight.grad is kept and bool((kept == 1).all())


# --- plain attributes ----------------------------------------------------------------------------


class _Keeping(nn.Module):
    """Keeps what it saw in plain attributes, with the graph behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.state: torch.Tensor | None = None
        self.sum = torch.zeros(WIDTH)
        self.other = torch.ones(WIDTH)
        self.longest = 0
        self.late: nn.Parameter | None = None
        self.name = "before"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.state = y
        self.sum += y.detach().sum((0, 1))
        self.other = y * 2
        self.longest = max(self.longest, x.shape[1])
        self.new, self.number = y, 3
        self.late = nn.Parameter(torch.ones(1))
        self.name = "after"
        return y


@pytest.mark.parametrize("raised", [False, True])
def test_tensors_and_numbers_that_modules_keep_are_put_back(raised: bool) -> None:
    model = nn.Sequential(_Keeping())
    keeping = model[0]
    assert isinstance(keeping, _Keeping)
    total, other = keeping.sum, keeping.other

    def run() -> None:
        with untouched(model):
            model(_stream())
            assert keeping.state is not None and keeping.longest == 5 and bool(total.any())
            if raised:
                raise ValueError("stop")

    if raised:
        with pytest.raises(ValueError, match="stop"):
            run()
    else:
        run()
    assert keeping.state is None
    assert keeping.sum is total and not total.any()
    assert keeping.other is other and bool((other == 1).all())
    assert keeping.longest == 0
    assert not hasattr(keeping, "new") and not hasattr(keeping, "number")
    assert keeping.name == "before"
    assert keeping.late is None and not list(keeping.parameters(recurse=False))


def test_a_tensor_of_inference_mode_is_put_back() -> None:
    model = _Keeping()
    with torch.inference_mode():
        model.other = kept = torch.ones(WIDTH)
    with untouched(model):
        model(_stream())
    assert model.other is kept


@pytest.mark.parametrize("before", [False, True], ids=["fresh", "after a pass"])
@pytest.mark.parametrize("entry", ["measure", "anatomy_of", "jacobian", "lyapunov"])
def test_recurrent_states_are_those_of_before(entry: str, before: bool) -> None:
    from leadline.testing.zoo import ZOO

    model = ZOO["recurrent_gemma"].build(0).eval()
    inputs = ZOO["recurrent_gemma"].inputs(model, 1)
    if before:
        with torch.no_grad():
            model(**inputs)

    def states() -> dict[str, object]:
        return {
            f"{path}.{name}": getattr(module, name)
            for path, module in model.named_modules()
            for name in ("recurrent_states", "conv1d_state")
            if name in vars(module)
        }

    kept = states()
    assert (len(kept) > 0) and any(value is not None for value in kept.values()) is before
    options = {"jacobian": {"layer": 1, "k": 1, "probes": 2}, "lyapunov": {"k": 1}}
    getattr(leadline, entry)(model, inputs, **options.get(entry, {}))
    after = states()
    assert list(after) == list(kept) and all(after[key] is kept[key] for key in kept)
    copy.deepcopy(model)  # which refuses tensors with a graph


def test_positions_that_grow_with_the_text_are_the_same_after_a_long_one() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=4,
        rope_parameters=rope,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 20, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        real = copy.deepcopy(model)(ids).logits
    with torch.no_grad(), untouched(model):
        model(ids)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, real)


class _PastTheCounter(nn.Module):
    """Changes a buffer and an attribute in ways that count no version."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("table", torch.zeros(2))
        self.kept = torch.zeros(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.data += 1
        self.count.numpy()[0] += 1
        self.table.data = torch.ones(4)
        self.kept.data.add_(1)
        return x


def test_what_is_changed_past_the_version_counter_is_put_back() -> None:
    model = _PastTheCounter()
    table = model.table
    with untouched(model):
        model(torch.zeros(1))
    assert [t.tolist() for t in (model.count, model.table, model.kept)] == [
        [0] * 3,
        [0] * 2,
        [0] * 3,
    ]
    assert model.table is table


@pytest.mark.parametrize("place", ["buffer", "attribute"])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.full((1,), torch.nan).expand(3),
    ],
    ids=["sparse", "meta", "nan"],
)
def test_what_torch_does_not_compare_stays_as_it_is(place: str, tensor: torch.Tensor) -> None:
    model = nn.Linear(2, 2)
    if place == "buffer":
        model.register_buffer("odd", tensor)
    else:
        model.odd = tensor
    version = tensor._version
    with untouched(model):
        model(torch.zeros(1, 2))
    assert model.odd is tensor
    assert tensor._version == version


# --- containers and generators -------------------------------------------------------------------


class _Recording(nn.Module):
    """Keeps what it saw in containers of every kind, and draws from every generator."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = [1, torch.zeros(2), {"inside": [0]}]
        self.table: dict[str, Any] = {"a": torch.zeros(2)}
        self.counts = Counter({"calls": 1})
        self.ordered = OrderedDict(first=1, second=2)
        self.last: deque[int] = deque([1, 2], maxlen=2)
        self.seen = {1}
        self.pair = (torch.zeros(2), [0])
        self.word, self.bits = "before", b"before"
        self.whole: Any = None
        self.itself: list[Any] = []
        self.itself.append(self.itself)
        self.torch_numbers = torch.Generator().manual_seed(1)
        self.numbers = random.Random(1)
        self.numpy_numbers = np.random.default_rng(1)
        self.old_numpy_numbers = np.random.RandomState(1)

    def drawn(self) -> list[float]:
        """Numbers from every generator, global ones too."""
        return [
            random.random(),
            float(np.random.rand()),
            self.numbers.random(),
            float(self.numpy_numbers.random()),
            float(self.old_numpy_numbers.rand()),
            float(torch.rand(1, generator=self.torch_numbers)),
            float(torch.rand(1)),
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows[1] += 1
        self.rows[2]["inside"].append(x)
        self.rows.append(x)
        self.table["a"].add_(1)
        self.table["b"] = x
        self.counts["calls"] += 1
        self.ordered.move_to_end("first")
        self.last.append(3)
        self.seen.add(2)
        self.pair[0].add_(1)
        self.pair[1].append(x)
        self.word, self.bits, self.whole = "after", b"after", [x]
        self.itself.append(1)
        self.new = [x]
        self.drawn()
        return x


@pytest.mark.parametrize("nested", [False, True])
def test_what_modules_keep_in_containers_is_put_back(nested: bool) -> None:
    model = nn.Sequential(_Recording())
    one = model[0]
    assert isinstance(one, _Recording)
    objects = {name: value for name, value in vars(one).items() if not name.startswith("_")}
    with untouched(model):
        model(torch.zeros(1))
        if nested:
            with untouched(model):
                model(torch.zeros(1))
            assert len(one.rows) == 4 and one.counts["calls"] == 2 and one.word == "after"
    # The very same objects, with their content.
    assert all(vars(one)[name] is value for name, value in objects.items())
    assert len(one.rows) == 3 and one.rows[0] == 1 and not one.rows[1].any()
    assert one.rows[2] == {"inside": [0]}
    assert list(one.table) == ["a"] and not one.table["a"].any()
    assert one.counts == {"calls": 1} and list(one.ordered) == ["first", "second"]
    assert list(one.last) == [1, 2] and one.last.maxlen == 2 and one.seen == {1}
    assert not one.pair[0].any() and one.pair[1] == [0]
    assert (one.word, one.bits, one.whole) == ("before", b"before", None)
    assert len(one.itself) == 1 and one.itself[0] is one.itself
    assert not hasattr(one, "new")


def test_generators_of_random_numbers_are_put_back() -> None:
    drawn: list[list[float]] = []
    for measured in (False, True):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        model = _Recording()
        if measured:
            with untouched(model):
                model(torch.zeros(1))
        drawn.append(model.drawn())
    assert drawn[0] == drawn[1]


def test_a_model_that_evaluates_in_its_own_way_is_asked_to() -> None:
    class FrozenStatistics(nn.Sequential):
        asked = 0

        def train(self, mode: bool = True) -> FrozenStatistics:
            self.asked += 1
            super().train(mode)
            self[0].eval()
            return self

    inner = FrozenStatistics(nn.Linear(2, 2), nn.Linear(2, 2)).train()
    model = nn.Sequential(inner)
    with untouched(model):
        assert not any(one.training for one in model.modules()) and inner.asked == 2
    assert model.training and inner[1].training and not inner[0].training


@pytest.mark.filterwarnings("ignore")  # TorchScript is old
def test_scripted_parts_are_put_back() -> None:
    model = nn.Sequential(torch.jit.script(nn.Dropout(0.5)), nn.Linear(2, 2))
    weight = model[1].weight
    weight.grad = kept = torch.ones_like(weight)
    with untouched(model):
        assert not model[0].training and weight.grad is None
        assert model(torch.ones(2)).equal(model[1](torch.ones(2)))
    assert model[0].training and weight.grad is kept
