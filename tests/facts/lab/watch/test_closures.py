"""A step that is given a closure is read after the closure, when its gradients are there."""

import pytest
import torch

from leadline.lab.watch.updates.closures import reading_after_closure
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


def stepper(step):
    """An optimizer whose class has this `step`."""
    kind = type("Stepper", (torch.optim.SGD,), {"step": step})
    return kind([torch.nn.Parameter(torch.ones(2))], lr=0.1)


def exchanged(optimizer, *given, read=lambda: None, **named):
    return reading_after_closure(optimizer, (optimizer, *given), named, read)


def test_the_closure_is_called_as_often_as_before_and_returns_what_it_did():
    heard = []
    optimizer = stepper(lambda self, closure=None, more=None, **rest: None)

    def closure():
        heard.append("closure")
        return 3.0

    args, kwargs = exchanged(optimizer, closure, "more", a=1, read=lambda: heard.append("read"))
    assert (args[0], args[2], kwargs) == (optimizer, "more", {"a": 1})
    assert [args[1](), args[1]()] == [3.0, 3.0]
    assert heard == ["closure", "read", "closure"]
    assert args[1].__name__ == "closure"


@pytest.mark.parametrize("kwargs", [{}, {"closure": None}, {"closure": 3}])
def test_a_step_without_a_closure_is_left_as_it_is(kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    assert exchanged(optimizer, **kwargs) is None


def test_what_the_step_does_not_call_a_closure_is_left_as_it_is():
    model, function = torch.nn.Linear(2, 2), lambda: 1.0
    assert exchanged(stepper(lambda self, model: None), model) is None
    assert exchanged(stepper(lambda self, score: None), function) is None
    assert exchanged(stepper(lambda self, closure=None: None), model) is None
    assert (
        exchanged(stepper(lambda self, closure=None, *, score=None: None), score=function) is None
    )
    unnamed = stepper(lambda self, *args, **kwargs: None)
    assert exchanged(unnamed, model) is None
    assert exchanged(unnamed, lambda batch: 1.0) is None
    assert exchanged(unnamed, function)[0][1]() == 1.0


def test_a_closure_is_found_wherever_the_step_takes_it_and_given_what_it_is_given():
    late = stepper(lambda self, model, closure=None: None)
    args, _ = exchanged(late, torch.nn.Linear(2, 2), lambda scale=1, *, more=0: (scale, more))
    assert isinstance(args[1], torch.nn.Linear)
    assert args[2](3, more=4) == (3, 4)


def test_a_step_that_takes_the_model_trains_as_it_does_alone():
    class OfModel(torch.optim.SGD):
        def step(self, model):
            assert isinstance(model, torch.nn.Module)
            assert model.weight.grad is not None
            super().step()

    def trained(watched):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        optimizer = OfModel(model.parameters(), lr=0.1)
        one = watch(model, optimizer, every=1, quiet=True) if watched else None
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step(model)
            optimizer.zero_grad()
        if one is not None:
            one.close()
            assert one.step == 3
        return model.weight.detach()

    assert torch.equal(trained(True), trained(False))


def test_a_closure_that_is_never_called_is_not_waited_for_twice(tmp_path):
    class Deaf(torch.optim.AdamW):
        def step(self, closure=None):
            return super().step()

    model = tiny_gpt2()
    optimizer = Deaf(model.parameters(), lr=1e-2)
    tokens = torch.zeros(2, 8, dtype=torch.long)
    with watch(model, optimizer, tmp_path / "a", every=1, quiet=True) as one:
        for _ in range(4):
            model(tokens, labels=tokens).loss.backward()
            optimizer.step(lambda: None)
            optimizer.zero_grad()
        ratios = one.record.select("weights.update_ratio")
        assert one.step == 4
        assert {row.step for row in ratios} == {2, 3, 4}
        assert min(row.value for row in ratios) > 0.0
