"""Rules about precision, outputs, references and short runs."""

from __future__ import annotations

import torch

from leadline.lab import pair
from tests.visits import findings, gpt2, language, visited


def test_p01_a_stream_beyond_float16_is_named_where_it_begins() -> None:
    model = gpt2(6)
    model.transformer.h[3].mlp.c_proj.weight.data.mul_(1e7)
    finding = findings(visited(model), "P01")["P01"]
    assert finding.layers[0] == 4
    assert finding.evidence[0]["value"] > 65504


def test_p04_the_module_whose_weights_are_broken_is_named() -> None:
    model = gpt2(4)
    model.transformer.h[2].mlp.c_proj.weight.data[3, 5] = torch.nan
    finding = findings(visited(model), "P04")["P04"]
    assert (finding.severity, finding.layers) == ("serious", (3,))
    assert finding.parameter == "transformer.h.2.mlp.c_proj"


def test_o01_a_negated_head_is_worse_than_chance_on_language_only() -> None:
    model, _ = pair.pre()
    assert findings(visited(model.eval(), language()), "P", "O", "X") == {}
    model.head.projection.weight.data.neg_()
    assert findings(visited(model, language()), "O01")["O01"].severity == "serious"
    random = torch.randint(256, (2, 96), generator=torch.Generator().manual_seed(0))
    assert findings(visited(model, random), "O01") == {}


def test_x02_the_first_tensor_that_was_scaled_is_named() -> None:
    reference = visited(gpt2(4))
    model = gpt2(4)
    assert findings(visited(model), "X02", reference=reference) == {}
    model.transformer.h[1].mlp.c_fc.weight.data.mul_(2)
    model.transformer.h[3].mlp.c_fc.weight.data.mul_(3)
    finding = findings(visited(model), "X02", reference=reference)["X02"]
    assert finding.parameter == "transformer.h.1.mlp.c_fc.weight"
    assert "scaled by 2" in finding.verdict


def test_x04_only_a_model_without_gradients_does_not_learn() -> None:
    model = gpt2(2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert findings(visited(model, train=12), "X04") == {}
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
