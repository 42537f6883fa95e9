"""Every part of every catalog keeps to its protocol and to what it declares."""

from __future__ import annotations

import pytest

from leadline.errors import CatalogError, UnknownName
from leadline.parts import PARTS
from leadline.testing import conformance
from leadline.testing.conformance import PartCheck, check_part

EVERY = [(kind, name) for kind, catalog in PARTS.items() for name in catalog.names()]
WITH_OPTIONS = [
    ("attention", "multihead(causal=false)"),
    ("attention", "multihead(groups=1, qk_norm=head, bias=false)"),
    ("attention", "multihead(qk_norm=width, head_width=4, scale=0.3)"),
    ("attention", "multihead(value_residual=0.5)"),
    ("positions", "rotary(share=0.5, pairs=neighbours)"),
    ("norm", "rmsnorm(offset=1.0)"),
    ("connection", "hyper(lanes=2, dynamic=false)"),
    ("connection", "hyper(close=sum)"),
    ("connection", "weighted(alpha=0.5)"),
    ("connection", "weighted(alpha=depth, learned=true)"),
    ("connection", "skipinit(start=0.1)"),
    ("connection", "lambda_skip(value=0.5)"),
    ("connection", "stochastic_depth(schedule=constant)"),
    ("connection", "laurel(kind=lr, rank=4)"),
    ("connection", "laurel(kind=pa, rank=4)"),
    ("connection", "depth_attention(blocks=2)"),
    ("connection", "denseformer(dilation=2, period=2)"),
    ("placement", "parallel(norms=2)"),
    ("embedding", "token(scale=sqrt_width, types=2, normed=true)"),
    ("head", "linear(bias=true)"),
]


@pytest.mark.parametrize(("kind", "choice"), [*EVERY, *WITH_OPTIONS])
def test_a_part_keeps_to_its_protocol_and_to_what_it_declares(kind: str, choice: str) -> None:
    checks = check_part(kind, choice)
    assert len(checks) > 15
    assert [f"{check.name}: {check.detail}" for check in checks if not check.passed] == []


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_of_part_has_its_own_function(kind: str) -> None:
    function = getattr(conformance, f"check_{kind}")
    assert f"check_{kind}" in conformance.__all__
    assert (function.func, function.args) == (check_part, (kind,))


def test_a_check_tells_what_it_found_and_how_long_it_took() -> None:
    found = {check.name: check for check in conformance.check_connection("identity")}
    assert found["declarations"].detail == "x + u"
    assert all(check.detail and check.seconds > 0 for check in found.values())
    assert PartCheck("builds", passed=True) == PartCheck(
        "builds", passed=True, detail="", seconds=0.0
    )


def test_some_checks_alone_can_be_asked_for() -> None:
    said: list[tuple[str, int, int]] = []
    checks = check_part(
        "connection", "rezero", only=["starts_as"], progress=lambda *step: said.append(step)
    )
    assert [check.name for check in checks] == ["builds", "starts_as"]
    assert said == [("builds", 0, 2), ("starts_as", 1, 2)]
    with pytest.raises(UnknownName, match="Did you mean 'starts_as'"):
        check_part("connection", "rezero", only=["starts_at"])


def test_a_part_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="No connection is called 'rezerro'"):
        check_part("connection", "rezerro")
    with pytest.raises(UnknownName, match="No kind of part is called 'connections'"):
        check_part("connections", "rezero")
    with pytest.raises(CatalogError, match="has no option 'alhpa'"):
        check_part("connection", "rezero(alhpa=1)")
