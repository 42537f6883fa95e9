"""What becomes of every claim about the algebra of x + F(x), with numbers by an independent route."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from leadline.claims import CLAIMS
from leadline.claims.ruling import Ruling
from tests.claims_ruled import ruled

HOLDS, CONDITIONS, FALSE = "holds", "holds under conditions", "false as stated"

FAST = {
    "eigenvalues-decide-decay": FALSE,
    "factors-below-one-vanish": CONDITIONS,
    "gradient-is-one": CONDITIONS,
    "gradient-is-product-of-weights": CONDITIONS,
    "identity-products-are-stabler": CONDITIONS,
    "loss-gradient-formula": FALSE,
    "one-always-lets-gradients-flow": FALSE,
    "one-plus-e-to-the-depth": CONDITIONS,
    "post-norm-wraps-the-identity": CONDITIONS,
    "residual-chain-rule": CONDITIONS,
    "shortcut-is-a-fallback": CONDITIONS,
    "shortcut-keeps-information": CONDITIONS,
    "small-branches-keep-products": CONDITIONS,
    "identity-path-survives": FALSE,
    "layers-learn-small-adjustments": FALSE,
    "gradient-flows-through-skip": CONDITIONS,
    "skip-carries-the-signal": CONDITIONS,
}
WITHOUT_CORRECTION = {
    "power-of-nine-tenths",
    "pre-norm-jacobian",
    "post-norm-jacobian",
    "zero-branch-is-identity",
}
SLOW = {
    "euler-is-easily-stable": CONDITIONS,
    "residual-is-ode": CONDITIONS,
    "post-norm-breaks-continuity": CONDITIONS,
    "residual-task-is-simpler": CONDITIONS,
    "small-init-small-derivative": CONDITIONS,
    "two-residuals-per-block": CONDITIONS,
    "zero-easier-than-identity": CONDITIONS,
}
UNCHECKABLE = {"resnet-against-vanishing-gradients"}


def of(found: Ruling, name: str) -> np.ndarray:
    assert found.numbers is not None
    return np.array(found.numbers[name])


def test_every_claim_of_the_group_is_ruled_on_here() -> None:
    names = {n for n in CLAIMS.names() if CLAIMS.get(n).claim.group == "algebra"}
    assert names == {*FAST, *WITHOUT_CORRECTION, *SLOW, *UNCHECKABLE}
    for name in UNCHECKABLE:
        assert not CLAIMS.get(name).claim.checkable


@pytest.mark.parametrize(("name", "verdict"), FAST.items())
def test_the_verdict_and_its_correction(name: str, verdict: str) -> None:
    # A mean over 2 seeds has a wide interval, so that a third is taken.
    found = ruled(name, (0, 1, 2))
    assert (found.verdict, found.correction) == (verdict, "holds")


@pytest.mark.parametrize("name", sorted(WITHOUT_CORRECTION))
def test_what_holds_as_it_stands(name: str) -> None:
    found = ruled(name)
    assert (found.verdict, found.correction) == (HOLDS, None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verdict"), SLOW.items())
def test_the_verdict_of_what_takes_longer(name: str, verdict: str) -> None:
    found = ruled(name, (0, 1, 2))
    assert (found.verdict, found.correction) == (verdict, "holds")


def test_two_factors_without_an_eigenvalue_multiply_by_four() -> None:
    found = ruled("eigenvalues-decide-decay", (3,))
    assert of(found, "grown").tolist() == [4.0**20]
    assert of(found, "shrunk") == pytest.approx(0.2**20)
    # Factors between 0.89 and 0.9: the product lies between the powers of both ends.
    assert (0.89 / 0.9) ** 40 < of(found, "decay")[0] < 1.0
    assert 1.0 < of(found, "growth")[0] < (1.11 / 1.1) ** 40


def test_shears_whose_eigenvalues_are_all_above_one_grow_and_shrink() -> None:
    found = ruled("eigenvalues-decide-decay", (3,))
    # The product of a shear and its transpose is symmetric: its eigenvalues are its gains, but for
    # that the transpose comes last: S' (S S')^19 S = (S' S)^20.
    shear = np.array([[1.05, 2.0], [0.0, 1.05]])
    low, high = np.linalg.eigvalsh(shear.T @ shear)
    assert of(found, "sheared") == pytest.approx(high**20)
    assert of(found, "narrow") == pytest.approx(low**20)


def test_ten_per_cent_a_layer_compound() -> None:
    found = ruled("small-branches-keep-products", (3,))
    assert of(found, "grown") == pytest.approx(1.1**96)
    assert of(found, "shrunk") == pytest.approx(0.9**96)
    assert of(found, "quiet_high") == pytest.approx((1 + 1 / 96) ** 96)
    # Random branches of norm 0.1 add up like the root of the depth, not like the depth.
    assert of(found, "random_high")[0] < math.exp(0.1 * math.sqrt(96))


def test_the_noted_formula_misses_by_the_gradient_of_the_loss_less_one() -> None:
    found = ruled("loss-gradient-formula", (3,))
    rng = np.random.default_rng([3, 108])
    misses = []
    for _ in range(50):
        c, x = rng.uniform(2.0, 4.0), rng.uniform(-1.0, 1.0)
        misses.append((c - 1.0) / (c * (1.0 + math.cos(x))))
    assert of(found, "noted") == pytest.approx(np.mean(misses))


def test_a_post_norm_path_without_branches_loses_two_directions_of_every_token() -> None:
    found = ruled("post-norm-wraps-the-identity", (3,))
    assert of(found, "lost").tolist() == [2.0]
    # By hand: LayerNorm twice, at one token, by finite differences.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, generator=generator, dtype=torch.float64)

    def twice(v: torch.Tensor) -> torch.Tensor:
        once = torch.nn.functional.layer_norm(v, (16,))
        return torch.nn.functional.layer_norm(once, (16,))

    step = 1e-5
    columns = [
        (twice(x + step * unit) - twice(x - step * unit)) / (2 * step)
        for unit in torch.eye(16, dtype=torch.float64)
    ]
    values = torch.linalg.svdvals(torch.stack(columns))
    assert int((values < 1e-3).sum()) == 2
    assert values[:14] == pytest.approx(1.0 / float(x.std(correction=0)), rel=1e-4)


def test_a_product_of_random_rotations_plus_identities_grows_like_the_root_of_two() -> None:
    found = ruled("identity-products-are-stabler", (3,))
    # E|(I + Q) v|^2 = 2 |v|^2, so 96 factors give about 2^48.
    assert of(found, "grown")[0] == pytest.approx(48 * math.log10(2.0), abs=1.5)


def test_the_skip_brings_what_is_left_when_the_branches_are_cut_off() -> None:
    # The share of the probe from gradients: with branches detached g_0 is g_L.
    from leadline.claims.measure.block_jacobians import build_network
    from leadline.experiments.gradient_flow.starts import plain_attention, seen_writes
    from leadline.instruments.passes.measurement import measure

    network = build_network(24, 64, heads=4, length=16, seed=1)
    model, batch = network.model, network.batch
    share = np.asarray(measure(model, batch, probes="identity_share")["gradient.identity_share"])
    with plain_attention(), seen_writes(model) as seen:
        logits = model(batch.main)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch.main[0, 1:])
        first, last = torch.autograd.grad(loss, (seen.states[0], seen.states[-1]))
    by_hand = float((first * last).sum() / first.square().sum())
    assert share[0] == pytest.approx(by_hand, rel=1e-6)
    assert of(ruled("gradient-flows-through-skip", (1,)), "share")[0] == pytest.approx(by_hand)


def test_the_norms_of_post_norm_leave_the_product_of_one_over_s() -> None:
    # With branches of zero nothing but the first norm divides: x_0 has a variance of about 2.
    from leadline.claims.measure.block_jacobians import build_network

    network = build_network(3, 64, heads=4, length=8, seed=0, placement="post")
    states = network.empty().writes().states
    left = float(states[-1].norm() / (states[0] - states[0].mean(-1, keepdim=True)).norm())
    assert left == pytest.approx(1 / math.sqrt(2.0), rel=0.1)
    assert of(ruled("skip-carries-the-signal", (0,)), "post")[0] < 1e-6


def test_the_ranges_of_the_trained_models_are_those_of_the_writes() -> None:
    found = ruled("layers-learn-small-adjustments", (0,))
    (line,) = [one.lines for one in found.pictures]
    assert max(line["pre-norm"][1]) == of(found, "largest")[0]
    assert max(line["post-norm"][1]) == of(found, "post")[0]
    assert len(line["pre-norm"][1]) == 12


def test_the_picture_of_powers_holds_what_its_lines_are_called() -> None:
    (picture,) = ruled("one-plus-e-to-the-depth").pictures
    layers, values = picture.lines["(1 + 0.1)^L"]
    assert values == pytest.approx([1.1**layer for layer in layers])
    layers, values = picture.lines["(1 - 0.01)^L"]
    assert values == pytest.approx([0.99**layer for layer in layers])
    layers, values = picture.lines["0.1^L"]
    assert values == pytest.approx([0.1**layer for layer in layers])
    assert len(picture.lines["(1 + 0.01)^L"][0]) == 101


@pytest.mark.slow
def test_the_picture_of_the_exercise_holds_eight_trainings() -> None:
    from leadline.experiments.learning_identity import LearningIdentityOptions, trained

    (picture,) = ruled("zero-easier-than-identity", (4,)).pictures
    assert len(picture.lines) == 8
    alone = trained(LearningIdentityOptions(seeds=1, seed=4), blocks=1, skip=True, start="small")
    steps, values = picture.lines["1 block, skip, small start"]
    assert steps[-1] == 400.0
    assert values == pytest.approx(alone.curve[:, 0])


@pytest.mark.slow
def test_eight_layers_of_step_one_are_ode_view_followed_for_the_time_eight() -> None:
    from leadline.experiments.ode_view.experiment import ERROR, EULER, OdeViewOptions, ode_view

    found = ruled("residual-is-ode", (4,))
    lines = ode_view(OdeViewOptions(time=8.0, seeds=1, seed=4)).lines
    (values,) = [one.values for one in lines if one.panel == ERROR and one.name == EULER]
    assert of(found, "same_time") == pytest.approx(10.0 ** values[0], rel=1e-9)
