"""A step that is given a closure is read after the closure, when its gradients are there."""

import pytest
import torch

from leadline.lab.watch.closures import reading_after_closure
from leadline.lab.watch.watch import watch
from tests.watched import VOCABULARY, tiny_gpt2

UPDATES = 6


def history(path, *, closure, optimizer=torch.optim.AdamW):
    """Train with clipping, by a closure or without one; return the rows and the weights."""
    model = tiny_gpt2()
    steps = optimizer(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    with watch(model, steps, path, every=2, quiet=True) as one:
        for _ in range(UPDATES):
            tokens = torch.randint(VOCABULARY, (2, 8), generator=generator)

            def loss(tokens=tokens):
                steps.zero_grad()
                value = model(tokens, labels=tokens).loss
                value.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                return value

            if closure == "named":
                steps.step(closure=loss)
            elif closure == "positional":
                steps.step(loss)
            else:
                loss()
                steps.step()
        assert one.notes == []
        rows = {
            (row.quantity, row.statistic, str(row.site), row.step): row.value
            for row in one.record.select()
        }
    return rows, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("closure", ["named", "positional"])
def test_a_loop_with_closures_has_the_rows_of_one_without(tmp_path, closure):
    rows, weights = history(tmp_path / "a", closure=closure)
    plain_rows, plain_weights = history(tmp_path / "b", closure=None)
    assert rows == plain_rows
    assert {step for quantity, *_, step in rows if quantity == "gradient.parameters"} == {1, 2, 4, 6}  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(weights, plain_weights, strict=True))


def test_lbfgs_is_read_after_the_first_of_its_calls(tmp_path):
    rows, _ = history(tmp_path / "a", closure="named", optimizer=torch.optim.LBFGS)
    assert any(quantity == "weights.update_ratio" for quantity, *_ in rows)


def test_the_closure_is_called_as_often_as_before_and_returns_what_it_did():
    heard = []
    args, kwargs = reading_after_closure(
        ("optimizer", lambda: heard.append("closure") or 3.0, "more"),
        {"a": 1},
        lambda: heard.append("read"),
    )
    assert (args[0], args[2], kwargs) == ("optimizer", "more", {"a": 1})
    assert [args[1](), args[1]()] == [3.0, 3.0]
    assert heard == ["closure", "read", "closure"]


@pytest.mark.parametrize("kwargs", [{}, {"closure": None}, {"closure": 3}])
def test_a_step_without_a_closure_is_left_as_it_is(kwargs):
    assert reading_after_closure(("optimizer",), kwargs, lambda: None) is None
