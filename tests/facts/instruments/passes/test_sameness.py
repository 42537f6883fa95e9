"""The same model, loss and declaration have the same digests; whatever changes a number does not."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.errors import RecordError
from leadline.instruments.passes.sameness import (
    declared_digest,
    described,
    digest_of,
    function_facts,
    structure_of,
)


def _gpt2(heads: int = 4, activation: str = "gelu_new", **options: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_embd=16,
        n_head=heads,
        vocab_size=20,
        n_positions=16,
        activation_function=activation,
        bos_token_id=1,
        eos_token_id=2,
        **options,
    )
    return GPT2LMHeadModel(config).eval()


def test_what_leaves_the_weights_alone_changes_the_structure() -> None:
    first = _gpt2()
    others = [_gpt2(2), _gpt2(activation="relu"), _gpt2(scale_attn_by_inverse_layer_idx=True)]
    eager = _gpt2()
    eager.set_attn_implementation("eager")
    assert structure_of(first) == structure_of(_gpt2())
    for other in [*others, eager]:
        assert digest_of(other) == digest_of(first)
        assert structure_of(other) != structure_of(first)


def test_where_a_model_was_loaded_from_is_no_part_of_its_structure() -> None:
    first, second = _gpt2(), _gpt2()
    second.config._name_or_path = "elsewhere"
    assert structure_of(first) == structure_of(second)


class _Own(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"heads": 2}, {"heads": 4}),
        ({"scale": 1.0}, {"scale": 0.5}),
        ({"activation": torch.relu}, {"activation": torch.tanh}),
        ({"activation": lambda x: x * 2}, {"activation": lambda x: x * 3}),
        ({"kernel": (3, 3)}, {"kernel": (3, 5)}),
        ({"mask": torch.ones(2)}, {"mask": torch.zeros(2)}),
        ({"way": None}, {"way": "other"}),
    ],
    ids=["number", "scale", "function", "lambda", "tuple", "tensor", "none"],
)
def test_public_attributes_are_part_of_the_structure(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert structure_of(_Own(**one)) == structure_of(_Own(**one))
    assert structure_of(_Own(**one)) != structure_of(_Own(**other))
    hidden = [{f"_{name}": value for name, value in those.items()} for those in (one, other)]
    assert structure_of(_Own(**hidden[0])) == structure_of(_Own(**hidden[1]))


def test_a_recipe_is_part_of_the_structure() -> None:
    sizes: dict[str, Any] = {"depth": 2, "width": 8, "heads": 2, "vocabulary": 11, "context": 8}
    plain = leadline.Transformer(**sizes)
    again = leadline.Transformer(**sizes)
    other = leadline.Transformer(**{**sizes, "heads": 4})
    assert structure_of(plain) == structure_of(again) != structure_of(other)


def _scaled(factor: object) -> Callable[..., Any]:
    return lambda out, inputs: out.logits * factor


def _with_default(factor: float) -> Callable[..., Any]:
    def loss(out: Any, inputs: Any, *, times: float = factor) -> Any:
        return out.logits * times

    return loss


class _Weighted:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, out: Any, inputs: Any) -> Any:
        return out.logits * self.weight

    def method(self, out: Any, inputs: Any) -> Any:
        return self(out, inputs)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        # Their codes differ in a name alone, and in a constant alone.
        (lambda o, i: o.sum(), lambda o, i: o.sum(), lambda o, i: o.mean()),
        (lambda o, i: o * 2, lambda o, i: o * 2, lambda o, i: o * 3),
        (_scaled(1.0), _scaled(1.0), _scaled(2.0)),
        (_scaled(torch.ones(2)), _scaled(torch.ones(2)), _scaled(torch.zeros(2))),
        (_scaled({"a": 1, "b": 2}), _scaled({"b": 2, "a": 1}), _scaled({"a": 2, "b": 1})),
        (_with_default(1.0), _with_default(1.0), _with_default(2.0)),
        (_Weighted(1.0), _Weighted(1.0), _Weighted(2.0)),
        (_Weighted(1.0).method, _Weighted(1.0).method, _Weighted(2.0).method),
        (
            functools.partial(torch.mul, other=1),
            functools.partial(torch.mul, other=1),
            functools.partial(torch.mul, other=2),
        ),
        (nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=2.0)),
        (torch.sum, torch.sum, torch.mean),
    ],
    ids=[
        "name",
        "constant",
        "closure",
        "tensor",
        "dictionary",
        "default",
        "object",
        "method",
        "partial",
        "module",
        "builtin",
    ],
)
def test_a_loss_is_known_by_its_code_and_what_it_holds(one: Any, same: Any, other: Any) -> None:
    assert function_facts(one) == function_facts(same)
    assert function_facts(one)["digest"] != function_facts(other)["digest"]


def test_a_loss_is_told_by_its_name() -> None:
    facts = function_facts(_scaled)
    assert (facts["module"], facts["name"]) == (__name__, "_scaled")
    assert function_facts(_Weighted(1.0))["name"] == "_Weighted"


def test_circles_come_to_an_end() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert described(circle).count("builtins.list") > 1


_SCRIPT = """
from leadline.instruments.passes.sameness import described, structure_of
from torch import nn
class Thing:
    pass
thing = Thing()
m = nn.Linear(2, 2)
m.act = lambda x: x in {"a", "b", "c"}
print(described([{"x", "y", "z"}, m.act, object()]), structure_of(m))
"""


def test_digests_are_the_same_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1 and " at 0x" not in told.pop()


def test_a_declaration_is_known_by_all_that_it_says() -> None:
    first = leadline.declare(blocks="blocks", writes=["attention", "mlp"])
    assert declared_digest(None) is None
    assert declared_digest(first) == declared_digest(replace(first))
    for change in ({"gains": (1.0, 0.5)}, {"parallel": True}, {"writes": ("mlp", "attention")}):
        assert declared_digest(replace(first, **change)) != declared_digest(first)  # pyright: ignore


def test_the_balance_of_an_anatomy_is_no_part_of_what_was_declared() -> None:
    model = leadline.Transformer(depth=2, width=8, heads=2, vocabulary=11, context=8)
    found = leadline.anatomy_of(model)
    assert declared_digest(found) == declared_digest(replace(found, balance=None))
    assert declared_digest(found) != declared_digest(replace(found, stacks=()))


# --- in a measurement ----------------------------------------------------------------------------


class _Cut(Exception):
    """The end of a measurement that does not end by itself."""


def _measure(model: nn.Module, path: Path, *, cut: bool = False, **options: Any) -> Any:
    def progress(what: str, done: int, total: int) -> None:
        if cut and "layer 2" in what:
            raise _Cut

    ids = torch.randint(0, 11, (1, 6), generator=torch.Generator().manual_seed(0))
    return leadline.measure(
        model, ids, probes="gradient,jacobian(k=1)", path=path, progress=progress, **options
    )


def _first(out: Any, inputs: Any) -> torch.Tensor:
    return out.logits.square().mean()


def _second(out: Any, inputs: Any) -> torch.Tensor:
    return out.logits[..., 0].sum()


@pytest.mark.parametrize(
    ("heads", "options", "other", "words"),
    [
        (2, {}, {}, "the structure"),
        (None, {"loss": _first}, {"loss": _second}, "the loss"),
        (
            None,
            {},
            {
                "anatomy": leadline.declare(
                    blocks="transformer.h", writes=["attn", "mlp"], name="decoder"
                )
            },
            "the anatomy",
        ),
    ],
    ids=["heads", "loss", "declaration"],
)
def test_a_measurement_does_not_go_on_with_something_else(
    tmp_path: Path,
    heads: int | None,
    options: dict[str, Any],
    other: dict[str, Any],
    words: str,
) -> None:
    path = tmp_path / "a.leadline"
    with pytest.raises(_Cut):
        _measure(_gpt2(), path, cut=True, **options)
    with pytest.raises(RecordError, match=rf"\(it differs in {words}\)"):
        _measure(_gpt2(heads or 4), path, **{**options, **other})
    with _measure(_gpt2(), path, **options) as record:
        assert "unfinished" not in record.provenance


def test_a_file_that_is_no_record_is_refused_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "notes.leadline"
    path.write_text("my notes\n")
    told: list[str] = []
    for probes in ("stream", "jacobian"):
        with pytest.raises(RecordError, match="exists and is not a record"):
            leadline.measure(
                _gpt2(), probes=probes, path=path, progress=lambda what, *_: told.append(what)
            )
    assert path.read_text() == "my notes\n" and not told
    assert [p.name for p in tmp_path.iterdir()] == ["notes.leadline"]
