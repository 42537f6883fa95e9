"""MLPs against their formulas, activation by activation, in the numbers of mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

from leadline.errors import RecipeError
from leadline.parts import Transformer
from leadline.parts.branches import MLPS, Run
from leadline.parts.branches.joined import Joined
from leadline.parts.branches.mlp.perceptron import gated_width
from leadline.parts.place import Place
from tests.facts.parts.by_hand import layer_norm, stir

WIDTH = 6


def _tanh_gelu(x: Any) -> Any:
    inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
    return x / 2 * (1 + mpmath.tanh(inner))


def _gelu(x: Any) -> Any:
    return x * mpmath.mpf(math.erf(x / math.sqrt(2)) + 1) / 2


def _silu(x: Any) -> Any:
    return x / (1 + mpmath.exp(-x))


PLAIN: dict[str, Callable[[Any], Any]] = {
    "gelu": _gelu,
    "gelu_tanh": _tanh_gelu,
    "relu": lambda x: max(x, 0),
    "silu": _silu,
}
GATED: dict[str, Callable[[Any], Any]] = {"geglu": _tanh_gelu, "swiglu": _silu}


def _mlp(choice: str | dict[str, Any], inside: Any = lambda point, width: None) -> Any:
    place = Place(width=WIDTH, heads=2, depth=2, layer=1, sublayer=2, branch="mlp")
    branch = MLPS.build(choice, place=place, inside=inside)
    for _, weight in branch.weights():
        nn.init.normal_(weight, generator=torch.Generator().manual_seed(weight.numel()))
    return stir(branch, by=0.2).double()


def _each(activation: Callable[[Any], Any], values: np.ndarray) -> np.ndarray:
    return np.array([float(activation(float(v))) for v in values.ravel()]).reshape(values.shape)


def _x() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, 3, WIDTH, generator=generator, dtype=torch.float64)


def _numbers(branch: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in branch.named_parameters()}


def test_all_mlps_are_tried_here() -> None:
    assert sorted([*PLAIN, *GATED, "none"]) == MLPS.names()


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_mlp_is_two_maps_with_its_activation_between(name: str) -> None:
    branch, x = _mlp(name), _x().numpy()
    w = _numbers(branch)
    hidden = _each(PLAIN[name], x @ w["up.weight"].T + w["up.bias"])
    expected = hidden @ w["down.weight"].T + w["down.bias"]
    assert np.allclose(branch(_x(), Run()).detach().numpy(), expected, rtol=1e-11, atol=1e-13)
    assert w["up.weight"].shape == (4 * WIDTH, WIDTH)
    assert branch.causal is None


@pytest.mark.parametrize("name", GATED)
def test_a_gated_mlp_multiplies_the_activated_gate_by_the_other_map(name: str) -> None:
    branch, x = _mlp(name), _x().numpy()
    w = _numbers(branch)
    gate, up = np.split(w["gate_up.weight"], 2)
    hidden = _each(GATED[name], x @ gate.T) * (x @ up.T)
    expected = hidden @ w["down.weight"].T
    assert np.allclose(branch(_x(), Run()).detach().numpy(), expected, rtol=1e-11, atol=1e-13)
    assert set(w) == {"gate_up.weight", "down.weight"}  # no biases unless asked
    assert gate.shape == (16, WIDTH)  # 8/3 of 6


def test_a_gated_mlp_takes_biases_where_asked() -> None:
    branch, x = _mlp("swiglu(bias=true, hidden=5)"), _x().numpy()
    w = _numbers(branch)
    gate, up = np.split(x @ w["gate_up.weight"].T + w["gate_up.bias"], 2, -1)
    expected = (_each(_silu, gate) * up) @ w["down.weight"].T + w["down.bias"]
    assert np.allclose(branch(_x(), Run()).detach().numpy(), expected, rtol=1e-11, atol=1e-13)
    assert gate.shape[-1] == 5


def test_a_plain_mlp_may_have_no_biases() -> None:
    branch, x = _mlp("relu(bias=false, hidden=5)"), _x().numpy()
    w = _numbers(branch)
    assert set(w) == {"up.weight", "down.weight"}
    expected = np.maximum(x @ w["up.weight"].T, 0) @ w["down.weight"].T
    assert np.allclose(branch(_x(), Run()).detach().numpy(), expected, rtol=1e-11, atol=1e-13)
    assert w["up.weight"].shape == (5, WIDTH)


@pytest.mark.parametrize(
    ("width", "hidden"), [(1, 8), (3, 8), (6, 16), (48, 128), (64, 176), (256, 688), (4096, 10928)]
)
def test_the_gated_width_is_eight_thirds_in_steps_of_eight(width: int, hidden: int) -> None:
    assert gated_width(width) == hidden
    assert hidden % 8 == 0 and 8 * width / 3 <= hidden < 8 * width / 3 + 8


@pytest.mark.parametrize("name", ["gelu_tanh", "swiglu"])
def test_the_placements_norm_stands_before_the_last_map(name: str) -> None:
    asked: list[tuple[str, int]] = []

    def inside(point: str, width: int) -> nn.Module:
        asked.append((point, width))
        return nn.LayerNorm(width)

    branch, x = _mlp(name, inside), _x()
    assert asked == [("hidden", 24 if name == "gelu_tanh" else 16)]
    w = _numbers(branch)
    if name == "swiglu":
        gate, up = np.split(w["gate_up.weight"], 2)
        hidden = _each(_silu, x.numpy() @ gate.T) * (x.numpy() @ up.T)
    else:
        hidden = _each(_tanh_gelu, x.numpy() @ w["up.weight"].T + w["up.bias"])
    normed = layer_norm(branch.hidden_norm)(torch.tensor(hidden)).detach().numpy()
    expected = normed @ w["down.weight"].T + w.get("down.bias", np.zeros(()))
    assert np.allclose(branch(x, Run()).detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def test_an_mlp_names_its_weights() -> None:
    assert [role for role, _ in _mlp("relu").weights()] == ["up", "down"]
    gated = _mlp("swiglu")
    assert [role for role, _ in gated.weights()] == ["gate", "up", "down"]
    named = dict(gated.weights())
    assert torch.equal(torch.cat([named["gate"], named["up"]]), gated.gate_up.weight)
    assert named["down"] is gated.down.weight


def test_no_mlp_is_no_branch() -> None:
    model = Transformer(depth=2, width=8, heads=2, mlp="none")
    assert [name for name, _ in model.blocks[0].named_children()] == ["attention"]


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("relu(hidden=0)", "The option hidden of mlp is 0; give a whole number from 1 on."),
        ("swiglu(hidden=-8)", "The option hidden of mlp is -8; give a whole number from 1 on."),
        ("gelu(bias=1)", "The option bias of mlp is 1; give true or false."),
        ("geglu(bias=yes)", "The option bias of mlp is 'yes'; give true or false."),
    ],
)
def test_an_impossible_option_of_an_mlp_is_refused(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        _mlp(choice)
    assert str(caught.value) == sentence


class _Times(nn.Module):
    causal = True

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor, run: Run) -> torch.Tensor:
        return self.factor * x

    def weights(self) -> Any:
        yield f"times {self.factor}", torch.zeros(1)


def test_joined_branches_are_added_each_behind_its_norm() -> None:
    two: Any = _Times(2.0)
    three: Any = _Times(3.0)
    x = torch.ones(1, 1, 2)
    plain = Joined(two, three, attention_norm=None, mlp_norm=None)
    assert plain(x, Run()).tolist() == [[[5.0, 5.0]]]
    halves, tenths = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        halves.weight.copy_(0.5 * torch.eye(2))
        tenths.weight.copy_(0.1 * torch.eye(2))
    normed = Joined(two, three, attention_norm=halves, mlp_norm=tenths)
    assert normed(x, Run()).flatten().tolist() == pytest.approx([1.3, 1.3])
    assert [role for role, _ in normed.weights()] == ["times 2.0", "times 3.0"]
    assert normed.causal is True
