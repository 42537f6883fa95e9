"""A pass asks the device for numbers once, when it is over, however many layers the model has."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import leadline
from leadline.anatomy import Tap
from leadline.instruments.passes.collect import Collector
from leadline.instruments.passes.probes import DEFAULT, PROBES, plan
from leadline.instruments.passes.running import call, run
from leadline.models.inputs import Inputs, choose_loss
from leadline.testing.synchronisations import Synchronisations
from leadline.testing.tiny import Linear

PER_LAYER = {"attention": 3, "attention_spectrum": 5, "attention_product": 11, "collapse": 84}
"""Questions per layer of probes that decide by values what they compute next: 3 to find out which
weights and which norm queries and keys come from, and more where singular values are found step by
step until their interval is narrow. Each of them is one more than a GPU would like."""
IN_PASSES = [name for name in PROBES.names() if not plan(name).linear and name not in PER_LAYER]
OF_A_PASS = 3
"""The loss, the balance, and the numbers of all probes together."""
OF_PADDING = 2
"""Whether any token is padding, and which."""


def _places(name: str, depth: int, *, padded: bool) -> Counter[str]:
    """What is asked of the device in a pass with one probe, and not in the pass alone."""
    lanes = {"connection": "hyper"} if name == "lanes" else {}
    model = leadline.Transformer(depth=depth, width=16, heads=2, vocabulary=11, **lanes).eval()
    inputs = leadline.random_tokens(model, examples=2, length=6, seed=0)
    if padded:
        mask = torch.ones(2, 6, dtype=torch.bool)
        mask[1, 4:] = False
        inputs = Inputs(dict(inputs.tensors), mask=mask)
    anatomy = leadline.anatomy_of(model, inputs)
    loss, inputs = choose_loss(model, inputs)
    with Synchronisations() as waits:
        outcome = run(model, anatomy, plan(name), inputs, loss)
        outcome.collector.readings()
    assert outcome.collector.measured
    with Synchronisations() as without:
        loss.compute(call(model, inputs), inputs)
    return waits.places - without.places


@pytest.mark.parametrize("name", IN_PASSES)
def test_a_probe_asks_the_device_at_most_once_in_a_pass_at_any_depth(name: str) -> None:
    shallow, deep = (_places(name, depth, padded=False) for depth in (2, 5))
    assert deep == shallow
    assert deep.total() <= OF_A_PASS + 1


@pytest.mark.parametrize("name", PER_LAYER)
def test_a_probe_that_decides_by_values_asks_for_so_many_in_a_layer(name: str) -> None:
    shallow, deep = (_places(name, depth, padded=False) for depth in (2, 5))
    assert 0 < deep.total() - shallow.total() <= 3 * PER_LAYER[name]


@pytest.mark.parametrize("name", [*DEFAULT, "extremes", "recall", "identity_share"])
def test_of_padding_the_places_are_fetched_once(name: str) -> None:
    shallow, deep = (_places(name, depth, padded=True) for depth in (2, 5))
    assert deep == shallow
    assert deep.total() <= OF_A_PASS + OF_PADDING + 1


def test_the_tracer_counts_what_stops_a_program_and_nothing_else() -> None:
    x = torch.arange(6.0)
    with Synchronisations() as waits:
        y = torch.where(x > 2, x, 0.0)[torch.tensor([0, 4])].sum() + x.mean()
    assert not waits.places and y.numel() == 1
    questions = {
        "item": x[0].item,
        "float": lambda: float(x[0]),
        "bool": lambda: bool((x > 2).any()),
        "tolist": lambda: [x.tolist()],
        "numpy": lambda: [x.numpy()],
        "cpu": lambda: [x.cpu()],
        "truth": lambda: x[x > 2],
        "nonzero": x.nonzero,
        "equal": lambda: torch.equal(x, x),
    }
    for name, ask in questions.items():
        with Synchronisations() as waits:
            ask()
        assert waits.count == 1, name
        (place,) = waits.places
        assert "test_synchronisations.py:" in place
    assert torch.Tensor.tolist(x) == [0, 1, 2, 3, 4, 5]


def test_what_has_been_fetched_is_asked_for_nothing() -> None:
    x = torch.arange(6.0)
    with Synchronisations() as waits:
        brought = (x * 2).cpu()
        assert waits.count == 1
        table = torch.zeros(2)
        table[torch.tensor([0, 1])] = brought[:2]
        assert (brought[1:] + 1).sum().item() == 35
        assert float(brought.max()) == 10
        assert table.tolist() == [0, 2]
    assert waits.count == 1
    with Synchronisations() as waits:
        _ = x.cpu()
        _ = x.tolist()  # the tensor itself still stands on the device
    assert waits.count == 2


class _Devices(TorchDispatchMode):
    """The kinds of device on which operations leave their results, numbers without axes aside."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor) and one.ndim:
                self.kinds[one.device.type] += 1
        return out


def test_on_another_device_the_default_probes_make_no_tensor_elsewhere_and_ask_nothing() -> None:
    """The device "meta" has shapes and no numbers: a question for one of them is an error."""
    real = Linear(depth=3)
    anatomy = leadline.anatomy_of(real, torch.randn(2, 6, 16))
    collector = Collector(plan())
    model = real.to("meta")
    stream = torch.zeros(2, 6, 16, device="meta")
    with _Devices() as devices:
        with Tap(model, anatomy, collector, gradients=True) as tap:
            output = model(stream)
        output.square().sum().backward()
        collector._flush()
    assert devices.kinds["meta"] > 100
    assert set(devices.kinds) == {"meta"}
    for end in (collector.readings, tap.balance):
        with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
            end()
