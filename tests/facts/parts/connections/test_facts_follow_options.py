"""What a connection declares is true of the options it was built with."""

import pytest

from leadline.parts.connections import CONNECTIONS
from leadline.parts.place import Place


def built(choice):
    return CONNECTIONS.build(choice, place=Place(8, 1, 4, 2))


@pytest.mark.parametrize(
    ("choice", "starts_as"),
    [
        ("weighted", "plain"),
        ("weighted(alpha=0.0)", "identity"),
        ("weighted(alpha=0.5)", None),
        ("weighted(alpha=depth)", None),
        ("skipinit", "identity"),
        ("skipinit(start=1.0)", "plain"),
        ("skipinit(start=0.1)", None),
        ("lambda_skip", None),
        ("lambda_skip(value=1.0)", "plain"),
        ("lambda_skip(value=2.0)", None),
        ("hyper", "plain"),
        ("hyper(close=sum)", None),
    ],
)
def test_how_it_starts(choice, starts_as):
    assert built(choice).starts_as == starts_as


@pytest.mark.parametrize(
    ("value", "amplifies", "keeps_identity"),
    [(0.5, False, False), (1.0, False, True), (1.5, True, False), (-1.5, True, False)],
)
def test_lambda_amplifies_above_one_and_keeps_the_identity_at_one(value, amplifies, keeps_identity):
    connection = built(f"lambda_skip(value={value})")
    assert connection.amplifies is amplifies
    assert connection.keeps_identity is keeps_identity


def test_dropped_updates_vary_by_layer_only_under_a_linear_schedule_with_a_rate():
    assert built("stochastic_depth").varies is True
    assert built("stochastic_depth(schedule=constant)").varies is False
    assert built("stochastic_depth(rate=0.0)").varies is False
