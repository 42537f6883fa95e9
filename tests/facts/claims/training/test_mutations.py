"""A wrong formula in the product changes a verdict or breaks a correction."""

import pytest

from leadline.claims import CLAIMS
from leadline.claims.measure.trained_models import COMPUTED_SHARE
from tests.claims_ruled import ruled


def test_layers_that_are_dropped_and_computed_all_the_same_are_noticed(monkeypatch):
    from leadline.parts.connections.layerdrop import LayerDrop

    check = next(
        c
        for c in CLAIMS.get("layer-dropping-saves-work").claim.checks
        if c.number == "share" and c.part == "claim"
    )
    assert check.allows(COMPUTED_SHARE.run(0)["share"])

    def computed(self, state, update):
        stream, drawn = self._draw(state)
        stream = stream + drawn * update(None)
        return stream if self.place.ends_layer else (stream, drawn)

    monkeypatch.setattr(LayerDrop, "write_kept", computed)
    assert not check.allows(COMPUTED_SHARE.run(0)["share"])


@pytest.mark.slow
def test_a_weight_that_forgets_the_depth_makes_norms_mandatory(monkeypatch):
    from leadline.parts.connections import weighted

    assert ruled("normalisation-is-mandatory", seeds=(0,)).verdict == "false as stated"
    plain = weighted.Weighted.__init__

    def unscaled(self, place, *, alpha=1.0, learned=False):
        plain(self, place, alpha=1.0, learned=learned)

    monkeypatch.setattr(weighted.Weighted, "__init__", unscaled)
    found = ruled("normalisation-is-mandatory", seeds=(0,))
    assert found.verdict == "holds"


@pytest.mark.slow
def test_a_missing_skip_that_is_there_is_noticed(monkeypatch):
    from leadline.parts.connections.none import Disconnected

    monkeypatch.setattr(Disconnected, "write", lambda self, state, update: state + update)
    monkeypatch.setattr(Disconnected, "keep", 1.0)
    found = ruled("deeper-is-harder-without-skip", seeds=(0,))
    assert found.verdict == "false as stated"


@pytest.mark.slow
def test_a_warmup_that_is_not_done_is_noticed(monkeypatch):
    from leadline.lab import trainer

    monkeypatch.setattr(trainer, "learning_rate", lambda training, _update, *, steps: training.rate)
    found = ruled("post-norm-needs-small-rate", seeds=(0,))
    assert found.verdict == "holds"  # the reach, a usual rate after warm-up, no longer fails


@pytest.mark.slow
def test_a_unigram_entropy_that_is_the_bigram_entropy_is_noticed(monkeypatch):
    from leadline.lab.tasks import _task
    from leadline.lab.tasks._entropies import Entropies, entropies_of

    def swapped(counts, batch):
        right = entropies_of(counts, batch)
        return Entropies(unigram=right.bigram, bigram=right.unigram)

    monkeypatch.setattr(_task, "entropies_of", swapped)
    found = ruled("residual-variants-train", seeds=(0,))
    assert found.verdict == "false as stated"


@pytest.mark.slow
def test_a_readout_that_is_judged_on_what_it_was_fitted_to_is_noticed(monkeypatch):
    import torch

    from leadline.instruments.passes.probes import recall

    def fitted(source, target, *, ridge, seed):
        return torch.tensor(1.0, dtype=torch.float64)

    monkeypatch.setattr(recall, "held_out_r2", fitted)
    found = ruled("low-level-information-is-kept", seeds=(0,))
    assert found.verdict == "false as stated"
