"""A formula of the product that is changed is noticed: a verdict or a correction becomes another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import leadline.instruments.jacobian.measure
import leadline.instruments.passes.probes.identity_share
import leadline.theory.norm_jacobian as norms
import leadline.theory.residual_products as products
from leadline.errors import BalanceError
from leadline.instruments.jacobian import bidiagonal
from leadline.instruments.passes.probe import PerToken, Single
from leadline.instruments.passes.probes.update import UpdateProbe
from leadline.numerics.linear.linear_maps import Chain, Shifted
from leadline.parts.connections.identity import Identity
from leadline.parts.connections.rezero import ReZero
from leadline.parts.connections.weighted import Weighted
from leadline.theory.residual_products import ProductBand
from tests.claims_ruled import ruled

Patch = pytest.MonkeyPatch


def _band(monkeypatch: Patch, lower: Any, upper: Any) -> None:
    """Exchange the two ends of the band of a product of residual factors."""

    def bands(given: Sequence[float]) -> tuple[ProductBand, ...]:
        sums = np.concatenate([[0.0], np.cumsum(given)])
        lows = np.concatenate([[0.0], np.cumsum([lower(one) for one in given])])
        highs = np.concatenate([[0.0], np.cumsum([upper(one) for one in given])])
        return tuple(ProductBand(*map(float, ends)) for ends in zip(lows, highs, sums, strict=True))

    monkeypatch.setattr(products, "product_bands", bands)
    monkeypatch.setattr(products, "product_band", lambda given: bands(given)[-1])


@pytest.mark.parametrize(
    "name",
    [
        "small-branches-keep-products",
        "one-always-lets-gradients-flow",
        "shortcut-keeps-information",
    ],
)
def test_a_band_that_forgets_how_much_a_branch_can_take(monkeypatch: Patch, name: str) -> None:
    _band(monkeypatch, lambda q: np.log1p(-q / 2), np.log1p)
    assert ruled(name).correction == "fails"


def test_a_band_that_forgets_how_much_a_branch_can_add(monkeypatch: Patch) -> None:
    _band(monkeypatch, lambda q: np.log1p(-q), lambda q: np.log1p(q) / 2)
    assert ruled("small-branches-keep-products").correction == "fails"


def test_a_band_that_allows_too_much_is_noticed_because_both_ends_are_attained(
    monkeypatch: Patch,
) -> None:
    _band(monkeypatch, lambda q: np.log1p(-q), lambda q: 1.1 * np.log1p(q))
    assert ruled("small-branches-keep-products").correction == "fails"


@pytest.mark.parametrize("name", ["pre-norm-jacobian", "post-norm-jacobian"])
def test_the_centring_matrix_as_the_jacobian_of_layernorm(monkeypatch: Patch, name: str) -> None:
    def centring(x: Any, norm: str, gamma: Any, eps: float) -> np.ndarray:
        d = len(x)
        return np.asarray(gamma)[:, None] * (np.eye(d) - 1.0 / d)

    monkeypatch.setattr(norms, "_jacobian", centring)
    assert ruled(name).verdict == "false as stated"


def test_a_jacobian_of_layernorm_that_forgets_the_length(monkeypatch: Patch) -> None:
    real = norms._jacobian  # pyright: ignore[reportPrivateUsage]

    def without(x: Any, norm: Any, gamma: Any, eps: float) -> np.ndarray:
        hat, s = norms.normed(x, norm=norm, eps=eps)
        return real(x, norm, gamma, eps) + np.outer(hat, hat) / (s * len(hat))

    monkeypatch.setattr(norms, "_jacobian", without)
    for name in ("pre-norm-jacobian", "post-norm-jacobian"):
        assert ruled(name).verdict == "false as stated"


def test_an_identity_that_keeps_only_nine_tenths(monkeypatch: Patch) -> None:
    def write(self: Identity, state: Tensor, update: Tensor) -> Tensor:
        return 0.9 * state + update

    monkeypatch.setattr(Identity, "write", write)
    # No verdict is reached: the books of the anatomy, which promises x + u, do not balance.
    with pytest.raises(BalanceError):
        ruled("zero-branch-is-identity")


def test_a_rezero_that_starts_with_a_gain_of_one(monkeypatch: Patch) -> None:
    def write(self: ReZero, state: Tensor, update: Tensor) -> Tensor:
        return state + (self.alpha + 1.0) * update

    monkeypatch.setattr(ReZero, "write", write)
    assert ruled("shortcut-is-a-fallback").correction == "fails"


def test_a_branch_norm_that_forgets_to_take_the_identity_away(monkeypatch: Patch) -> None:
    def shifted(given: Any, by: float) -> Shifted:
        return Shifted(given, 0.0)

    monkeypatch.setattr(leadline.instruments.jacobian.measure, "Shifted", shifted)
    assert ruled("identity-path-survives").correction == "fails"


def test_a_chain_in_the_wrong_order(monkeypatch: Patch) -> None:
    from leadline.claims.measure.products import (
        draw_between,
        largest_of_chain,
        product,
        spectral_norm,
    )

    rng = np.random.default_rng(0)
    factors = [draw_between(rng, 6, 0.2, 2.0) for _ in range(4)]
    assert largest_of_chain(factors) == pytest.approx(spectral_norm(product(factors)), rel=1e-8)

    def forward(self: Chain, v: Tensor) -> Tensor:
        for one in reversed(self.maps):
            v = one.forward(v)
        return v

    def adjoint(self: Chain, u: Tensor) -> Tensor:
        for one in self.maps:
            u = one.adjoint(u)
        return u

    monkeypatch.setattr(Chain, "forward", forward)
    monkeypatch.setattr(Chain, "adjoint", adjoint)
    assert ruled("eigenvalues-decide-decay").correction == "fails"


def test_a_share_of_the_update_that_is_turned_upside_down(monkeypatch: Patch) -> None:
    real = UpdateProbe.update

    def swapped(self: UpdateProbe, at: Any, u: Any, x: Any) -> Any:
        yield from real(self, at, x, u)

    monkeypatch.setattr(UpdateProbe, "update", swapped)
    assert ruled("layers-learn-small-adjustments", (0, 1, 2)).correction == "fails"


@pytest.mark.parametrize("name", ["layers-learn-small-adjustments", "shortcut-is-a-fallback"])
def test_a_share_of_the_update_in_the_sum_of_both_lengths(monkeypatch: Patch, name: str) -> None:
    real = UpdateProbe.update

    def shared(self: UpdateProbe, at: Any, u: Any, x: Any) -> Any:
        part = u.norm / (u.norm + x.norm)
        for one in real(self, at, u, x):
            if isinstance(one, PerToken) and one.quantity.name == "update.ratio":
                yield PerToken(one.quantity, part)
            else:
                yield one

    monkeypatch.setattr(UpdateProbe, "update", shared)
    assert ruled(name).correction == "fails"


def test_a_cosine_of_memory_that_is_a_root(monkeypatch: Patch) -> None:
    import leadline.instruments.passes.probes.memory as memory

    real = memory.dot
    monkeypatch.setattr(memory, "dot", lambda x, y: real(x, y).abs().sqrt())
    assert ruled("skip-carries-the-signal").correction == "fails"


def test_writes_that_are_divided_by_the_root_of_the_blocks(monkeypatch: Patch) -> None:
    real = Weighted.__init__

    def by_blocks(self: Weighted, place: Any, *, alpha: Any = 1.0, learned: bool = False) -> None:
        real(self, place, alpha=(place.writes / 2) ** -0.5, learned=learned)

    monkeypatch.setattr(Weighted, "__init__", by_blocks)
    assert ruled("skip-carries-the-signal").correction == "fails"


def test_a_smallest_singular_value_that_is_twice_as_large(monkeypatch: Patch) -> None:
    real = bidiagonal.smallest

    def doubled(*given: Any, **options: Any) -> bidiagonal.Singular:
        found = real(*given, **options)
        return replace(found, values=2.0 * found.values)

    monkeypatch.setattr(bidiagonal, "smallest", doubled)
    assert ruled("identity-path-survives", (0,)).correction == "fails"


@pytest.mark.slow
def test_an_estimate_of_a_frobenius_norm_that_is_twice_as_large(monkeypatch: Patch) -> None:
    real = leadline.instruments.jacobian.measure.both_norms

    def doubled(*given: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(replace(one, value=2.0 * one.value) for one in real(*given, **options))

    monkeypatch.setattr(leadline.instruments.jacobian.measure, "both_norms", doubled)
    assert ruled("small-init-small-derivative", (0,)).correction == "fails"


def test_an_identity_share_that_is_halved(monkeypatch: Patch) -> None:
    real = leadline.instruments.passes.probes.identity_share.IdentityShareProbe.gradient

    def halved(self: Any, at: Any, g: Any) -> Any:
        for one in real(self, at, g):
            yield replace(one, value=0.5 * one.value) if isinstance(one, Single) else one

    monkeypatch.setattr(
        leadline.instruments.passes.probes.identity_share.IdentityShareProbe, "gradient", halved
    )
    assert ruled("gradient-flows-through-skip", (0, 1, 2)).correction == "fails"


def test_an_identity_share_of_roots(monkeypatch: Patch) -> None:
    share = leadline.instruments.passes.probes.identity_share
    real = share._inner  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(share, "_inner", lambda a, b: real(a, b).abs().sqrt())
    assert ruled("gradient-flows-through-skip").correction == "fails"


@pytest.mark.slow
def test_eigenvalues_of_the_branch_for_those_of_the_block(monkeypatch: Patch) -> None:
    import leadline.experiments.ode_view.experiment as view

    monkeypatch.setattr(view.Spectrum, "sizes", property(lambda self: np.abs(self.values - 1.0)))
    assert ruled("euler-is-easily-stable", (0,)).correction == "fails"


@pytest.mark.slow
def test_a_flow_on_the_sphere_that_forgets_the_projection(monkeypatch: Patch) -> None:
    import leadline.experiments.ode_view.experiment as view

    monkeypatch.setattr(view, "_tangent", lambda x, u: u)
    assert ruled("post-norm-breaks-continuity").correction == "fails"


@pytest.mark.slow
def test_steps_that_are_not_divided_by_the_depth(monkeypatch: Patch) -> None:
    import leadline.experiments.ode_view.experiment as view

    real = view._euler  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(view, "_euler", lambda f, x, h, steps: real(f, x, 1.01 * h, steps))
    found = ruled("residual-is-ode")
    assert (found.verdict, found.correction) != ("holds under conditions", "holds")
