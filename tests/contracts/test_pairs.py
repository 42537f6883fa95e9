"""Every connection with every placement: it runs, differentiates and balances, or it is refused."""

import pytest
import torch

import leadline
from leadline.errors import RecipeError
from leadline.parts.connections import CONNECTIONS
from leadline.parts.placements import PLACEMENTS

PAIRS = [(c, p) for c in CONNECTIONS.names() for p in PLACEMENTS.names()]


def build(connection, placement, **fields):
    return leadline.Transformer(
        depth=4,
        width=16,
        heads=2,
        vocabulary=32,
        context=8,
        init="xavier",
        connection=connection,
        placement=placement,
        **fields,
    )


def refused(connection, placement):
    try:
        leadline.Recipe(depth=4, width=16, heads=2, connection=connection, placement=placement)
    except RecipeError:
        return True
    return False


@pytest.mark.parametrize(("connection", "placement"), PAIRS)
def test_a_pair_runs_and_balances_or_is_refused_with_the_reason(connection, placement):
    if refused(connection, placement):
        sentence = rf"'{connection}' makes no sense with the placement '{placement}': \w+"
        with pytest.raises(RecipeError, match=sentence):
            build(connection, placement)
        return
    model = build(connection, placement)
    ids = torch.arange(16).view(2, 8) * 7 % 32
    model.loss(ids).backward()
    if CONNECTIONS.get(connection).drops:
        # In training a dropped layer is not computed and has no gradient; in evaluation all are.
        model.eval().loss(ids).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    assert not missing
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    anatomy = leadline.anatomy_of(model.eval(), inputs)
    assert anatomy.balance.layers == 4
    assert anatomy.balance.eps <= 4


def test_more_than_two_hundred_pairs_make_sense_and_the_notes_pairs_are_among_them():
    sensible = [pair for pair in PAIRS if not refused(*pair)]
    assert len(sensible) > 200
    for connection in ("identity", "weighted", "gated", "dropout", "rescaled_dropout"):
        for placement in ("pre", "post"):
            assert (connection, placement) in sensible


@pytest.mark.parametrize("connection", CONNECTIONS.names())
@pytest.mark.parametrize("branch", ["attention", "mlp"])
def test_a_stack_of_one_kind_of_branch_runs_with_every_connection_that_accepts_it(
    connection, branch
):
    placement = "pre" if not refused(connection, "pre") else "post"
    other = {"attention": "mlp", "mlp": "attention"}[branch]
    if connection == "b2t":
        with pytest.raises(RecipeError, match="'b2t' makes no sense"):
            build(connection, placement, **{other: "none"})
        return
    model = build(connection, placement, **{other: "none"})
    out = model.eval()(torch.arange(8).view(1, 8))
    assert out.shape == (1, 8, 32) and bool(out.isfinite().all())
    inputs = leadline.random_tokens(model, examples=2, length=8, seed=0)
    assert leadline.anatomy_of(model, inputs).balance.eps <= 4
