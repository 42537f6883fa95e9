"""What makes a visit cheap changes nothing that it sees: draws that wait, one pass for many checks."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from leadline.instruments.visit.draws import DrawsThatCount
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.small_pass import run_small
from leadline.models.inputs import Inputs
from leadline.models.inputs.for_model import batch_for
from tests.visits import gpt2

WIDTH = 256


def test_a_draw_that_another_replaces_is_not_done() -> None:
    torch.manual_seed(3)
    with DrawsThatCount():
        layer = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.normal_(layer.weight, std=0.02)
    torch.manual_seed(3)
    alone = torch.empty(WIDTH, WIDTH).normal_(0.0, 0.02)
    assert torch.equal(layer.weight, alone)


def test_what_nobody_holds_at_the_end_is_never_drawn() -> None:
    torch.manual_seed(3)
    with DrawsThatCount():
        head = nn.Linear(WIDTH, WIDTH, bias=False)
        table = nn.Embedding(WIDTH, WIDTH)
        head.weight = table.weight
    after = torch.random.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(head.weight, torch.empty(WIDTH, WIDTH).normal_())
    assert torch.equal(after, torch.random.get_rng_state())


def test_what_reads_a_parameter_sees_its_draw() -> None:
    with DrawsThatCount():
        table = nn.Embedding(WIDTH, WIDTH, padding_idx=5)
        twice = table.weight.detach() * 2
        copied = copy.deepcopy(nn.Linear(WIDTH, WIDTH))
        alias = nn.init.normal_(nn.Parameter(torch.empty(WIDTH, WIDTH))).data
        kept = [nn.Linear(WIDTH, WIDTH)]
    assert torch.equal(twice, 2 * table.weight)
    assert not table.weight[5].any()
    assert table.weight[6].std() > 0.5
    for weight, spread in ((copied.weight, 3 * WIDTH), (kept[0].weight, 3 * WIDTH), (alias, 1)):
        assert abs(float(weight.detach().std()) * spread**0.5 - 1) < 0.05


class InPlace(nn.Module):
    """Adds to its stream in place, after a norm has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x += self.layer(self.norm(x))
        return x


def test_a_pass_keeps_what_entered_as_it_was() -> None:
    model = nn.Sequential(InPlace(), InPlace())
    x = torch.randn(2, 3, 4)
    seen = run_small(model, Inputs({"input": x}))
    entered = {one.path: one.arguments[0] for one in seen.calls}
    assert torch.equal(entered["0.norm"], x)
    assert torch.equal(entered["1.norm"], model[0](x))
    assert torch.equal(seen.result, model(x))
    assert [one.path for one in seen.by_return] == [
        "0.norm", "0.layer", "0", "1.norm", "1.layer", "1",
    ]  # fmt: skip


def test_the_small_inputs_run_once_for_all_checks() -> None:
    model = gpt2(2).eval()
    patient = Patient(model, batch_for(model, None, 0), None)
    calls: list[int] = []
    handle = model.register_forward_pre_hook(lambda *_: calls.append(1))
    first, again = patient.output(patient.small), patient.output(patient.small)
    other = patient.output(patient.with_ids(patient.small.main.flip(1)))
    handle.remove()
    assert len(calls) == 2
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
