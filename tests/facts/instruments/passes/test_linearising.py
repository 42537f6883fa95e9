"""Probes of linear maps in a measurement: cut off and gone on with, told, refused, without a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy
from leadline.errors import ProbeError, RecordError
from leadline.instruments.jacobian.probes.jacobian import JacobianProbe
from leadline.instruments.passes.linear.linearising import Linearising
from leadline.instruments.passes.probes import plan
from leadline.instruments.passes.sameness import digest_of
from leadline.record import Reading, Record
from leadline.record.file.lock import only_writer
from leadline.record.file.unfinished import UNFINISHED
from leadline.testing.tiny import MeanAttention

ALL = "stream,jacobian(through=true,sublayers=true),lyapunov(k=2)"


def _model(depth: int = 3, **options: Any) -> leadline.Transformer:
    return leadline.Transformer(
        depth=depth, width=8, heads=2, vocabulary=11, context=8, **options
    ).eval()


def _measured(
    model: nn.Module, path: Path | None = None, probes: str = ALL, **options: Any
) -> Record:
    inputs = leadline.random_tokens(model, examples=2, length=6, seed=3)
    return leadline.measure(model, inputs, probes=probes, path=path, **options)


def _rows(record: Record) -> list[Reading]:
    return record.select()


def _held(path: Path) -> tuple[list[Reading], dict[str, Any]]:
    """All that a file holds."""
    with Record.open(path) as record:
        return record.select(), record.provenance


class _Cut(Exception):
    """The end of a measurement that does not end by itself."""


def _cut_at(number: int) -> Callable[[str, int, int], None]:
    """Progress that breaks off when so many steps are done."""

    def progress(what: str, done: int, total: int) -> None:
        if done >= number and done < total:
            raise _Cut(what)

    return progress


def _whys(record: Record) -> str:
    return "; ".join(r["why"] for r in record.provenance["coverage"]["refused"])


# --- parts ---------------------------------------------------------------------------------------


def _parts(probes: str, model: leadline.Transformer) -> Linearising:
    anatomy = leadline.anatomy_of(model)
    return Linearising(model, anatomy, plan(probes), lambda: None)


def test_parts_are_blocks_then_chains_then_products() -> None:
    found = _parts("lyapunov,jacobian(through=true,sublayers=true)", _model(2))
    assert [part.key for part in found.parts] == [
        "jacobian block decoder 1",
        "jacobian sublayer decoder 1.1",
        "jacobian sublayer decoder 1.2",
        "jacobian block decoder 2",
        "jacobian sublayer decoder 2.1",
        "jacobian sublayer decoder 2.2",
        "lyapunov chain decoder 0",
        "jacobian chain decoder 0",
        "jacobian product decoder 1",
        "jacobian product decoder 2",
    ]
    # Three steps per block and sublayer, one per block of a chain, one per product.
    assert found.steps == 6 * 3 + 2 * 2 + 2


def test_probes_of_the_passes_have_no_parts() -> None:
    found = _parts("default", _model(2))
    assert found.parts == [] and found.steps == 0


# --- cut off and gone on with --------------------------------------------------------------------


def test_rows_of_a_finished_block_are_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    seen: list[tuple[str, list[int]]] = []

    def look(what: str, done: int, total: int) -> None:
        if "layer 3: singular values" in what:
            with Record.open(path) as record:
                layers = {r.site.layer for r in record.select("jacobian.norm", point="block")}
                seen.append((what, sorted(layers)))
                assert UNFINISHED in record.provenance

    _measured(_model(), path, progress=look).close()
    assert seen and all(layers == [1, 2] for _, layers in seen)


@pytest.mark.parametrize("step", [9, 30, 37])
def test_a_measurement_that_was_cut_off_ends_with_the_rows_of_an_undisturbed_one(
    tmp_path: Path, step: int
) -> None:
    model = _model()
    whole = _measured(model, tmp_path / "whole.leadline")
    path = tmp_path / "cut.leadline"
    with pytest.raises(_Cut):
        _measured(model, path, progress=_cut_at(step))
    assert not (tmp_path / "cut.leadline-wal").exists()
    with Record.open(path) as unfinished:
        assert UNFINISHED in unfinished.provenance
        assert 0 < len(unfinished) < len(whole)
        assert str(unfinished).startswith("Unfinished: ")
    found = _measured(model, path)
    assert _rows(found) == _rows(whole)
    assert list(found.quantities) == list(whole.quantities)
    assert UNFINISHED not in found.provenance and "nfinished" not in str(found)
    for key in ("coverage", "linear_maps", "anatomy", "probes", "passes"):
        assert found.provenance[key] == whole.provenance[key]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.leadline", "whole.leadline"]


def test_no_finished_part_is_measured_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    linear = JacobianProbe.linear

    def counted(self: Any, at: Any, given: Any, tell: Any) -> Any:
        measured.append(str(at.site))
        return linear(self, at, given, tell)

    monkeypatch.setattr(JacobianProbe, "linear", counted)
    model, path = _model(), tmp_path / "a.leadline"
    for step in (4, 7, 9):
        with pytest.raises(_Cut):
            _measured(model, path, "jacobian", progress=_cut_at(step))
    _measured(model, path, "jacobian").close()
    with Record.open(path) as record:
        norms = record.select("jacobian.norm", statistic="mean")
    assert [r.site.layer for r in norms] == [1, 2, 3]
    # Only the part in which it was cut off is begun again.
    assert measured.count("decoder layer 1") == 2 and measured[-1] == "decoder layer 3"
    assert measured == sorted(measured)


def test_the_passes_are_not_run_again(tmp_path: Path) -> None:
    model, path = _model(), tmp_path / "a.leadline"
    with pytest.raises(_Cut):
        _measured(model, path, progress=_cut_at(10))
    told: list[str] = []
    _measured(model, path, progress=lambda what, *_: told.append(what)).close()
    assert "reading the anatomy" in told and "forward and backward" not in told


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"probes": "stream,jacobian(k=2)"}, "probes"),
        ({"seed": 1}, "seed"),
        ({"loss": "random"}, "loss"),
        ({"ablate": "block"}, "ablation"),
    ],
)
def test_another_request_is_refused_and_nothing_is_lost(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    model, path = _model(), tmp_path / "a.leadline"
    with pytest.raises(_Cut):
        _measured(model, path, progress=_cut_at(10))
    before = _held(path)
    options = {"probes": ALL, **change}
    with pytest.raises(RecordError, match=rf"cut off.*\(it differs in the {key}\)"):
        _measured(model, path, options.pop("probes"), **options)
    assert _held(path) == before
    with pytest.raises(RecordError, match="cut off"):
        _measured(model, path, "stream")
    assert _held(path) == before


def test_other_weights_and_other_inputs_are_other_requests(tmp_path: Path) -> None:
    model, path = _model(), tmp_path / "a.leadline"
    with pytest.raises(_Cut):
        _measured(model, path, progress=_cut_at(10))
    other = _model()
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    with pytest.raises(RecordError, match="differs in the weights"):
        _measured(other, path)
    with pytest.raises(RecordError, match="differs in the input"):
        leadline.measure(
            model,
            leadline.random_tokens(model, examples=2, length=6, seed=4),
            probes=ALL,
            path=path,
        )


def test_one_changed_weight_changes_the_digest() -> None:
    first, second = _model(), _model()
    assert digest_of(first) == digest_of(second)
    with torch.no_grad():
        next(second.parameters()).view(-1)[0] += 1e-6
    assert digest_of(first) != digest_of(second)
    assert digest_of(first) != digest_of(_model().bfloat16())


def test_a_finished_record_is_written_over(tmp_path: Path) -> None:
    model, path = _model(2), tmp_path / "a.leadline"
    _measured(model, path, "jacobian").close()
    _measured(model, path, "lyapunov").close()
    with Record.open(path) as record:
        assert set(record.quantities) == {"lyapunov.growth", "lyapunov.exponent"}
    _measured(model, path, "stream").close()
    with Record.open(path) as record:
        assert "lyapunov.growth" not in record and "stream.norm" in record


def test_two_measurements_do_not_write_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with only_writer(path), pytest.raises(RecordError, match="Another measurement is at work"):
        _measured(_model(2), path, "jacobian")
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_memory_hold_the_same(tmp_path: Path) -> None:
    model = _model(2)
    memory, file = _measured(model), _measured(model, tmp_path / "a.leadline")
    assert _rows(memory) == _rows(file)
    assert memory.provenance["coverage"] == file.provenance["coverage"]
    assert UNFINISHED not in memory.provenance


# --- progress ------------------------------------------------------------------------------------


def test_progress_never_goes_back_and_is_whole_only_at_the_end(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    model = _model()
    _measured(model, progress=lambda *step: heard.append(step))
    shares = [done / total for _, done, total in heard]
    assert shares == sorted(shares)
    assert [share for share in shares if share >= 1] == [1.0] and heard[-1][0] == "done"
    # Two of the passes, 9 blocks and sublayers of 3, 2 chains of 3, 3 products, the end.
    assert {done for _, done, _ in heard} == set(range(39 + 1))
    assert any("layer 2 mlp: branch, " in what and "products" in what for what, *_ in heard)


def test_progress_goes_on_where_it_stood(tmp_path: Path) -> None:
    model, path = _model(), tmp_path / "a.leadline"
    with pytest.raises(_Cut):
        _measured(model, path, progress=_cut_at(15))
    heard: list[int] = []
    _measured(model, path, progress=lambda what, done, total: heard.append(done)).close()
    # Four parts of three steps had ended, after the two of the passes.
    assert heard[:2] == [0, 14] and heard == sorted(heard)


# --- refusals ------------------------------------------------------------------------------------


class _Chain(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(kind() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Cutting(nn.Module):
    """A block whose stream carries no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MeanAttention(0.5)
        self.mlp = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x + self.attention(x)
            return x + self.mlp(x)


DECLARED = leadline.declare(blocks="layers", writes=["attention", "mlp"])


def _refused(path: Path | None, probes: str) -> Record:
    x = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    return leadline.measure(
        _Chain(_Cutting), x, probes=probes, anatomy=DECLARED, loss="random", path=path
    )


def test_what_cannot_be_linearised_stands_in_the_coverage_beside_other_probes() -> None:
    record = _refused(None, "stream,jacobian,lyapunov")
    assert "stream.norm" in record and "jacobian.norm" not in record
    refused = record.provenance["coverage"]["refused"]
    whats = " ".join(entry["what"] for entry in refused)
    assert "jacobian.singular" in whats and "lyapunov.exponent" in whats
    # The two layers have one reason, said of the first.
    assert "jacobian.product_of_norms of the block of the encoder, layers 1 to 2" in whats
    assert "Layer 1 ('layers.0') cuts the gradient" in _whys(record)
    assert "likewise in the others" in _whys(record)
    assert len(refused) == 3


def test_a_model_that_cannot_be_linearised_is_refused_where_nothing_else_was_asked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.leadline"
    x = torch.zeros(1, 2, 6)
    leadline.measure(_Chain(_Cutting), x, probes="stream", anatomy=DECLARED, path=path).close()
    before = path.read_bytes()
    with pytest.raises(ProbeError, match="cuts the gradient"):
        _refused(path, "jacobian")
    # What stood there stays, and no trace beside it.
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.leadline"]


def test_refusals_survive_being_cut_off(tmp_path: Path) -> None:
    whole, path = _refused(None, "stream,jacobian"), tmp_path / "a.leadline"
    x = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))

    def ask(progress: Any = None) -> Record:
        return leadline.measure(
            _Chain(_Cutting),
            x,
            probes="stream,jacobian",
            anatomy=DECLARED,
            loss="random",
            path=path,
            progress=progress,
        )

    with pytest.raises(_Cut):
        ask(_cut_at(6))
    assert ask().provenance["coverage"] == whole.provenance["coverage"]


def test_padding_is_said_to_be_part_of_the_maps() -> None:
    model = _model(2)
    inputs = leadline.random_tokens(model, examples=2, length=6, seed=3)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    padded = leadline.measure(model, replace(inputs, mask=mask), probes="jacobian")
    assert "padded tokens are tokens of the map" in _whys(padded)
    assert "padded" not in _whys(_measured(model, None, "jacobian"))


# --- without a trace -----------------------------------------------------------------------------


def test_measuring_leaves_no_trace() -> None:
    model = _model(2).train()
    weights = {name: p.clone() for name, p in model.named_parameters()}
    state = torch.random.get_rng_state()
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    _measured(model)
    assert model.training and not frozen.requires_grad
    assert all(p.requires_grad for p in list(model.parameters())[1:])
    assert all(p.grad is None and torch.equal(p, weights[n]) for n, p in model.named_parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_how_the_maps_were_run_stands_in_the_provenance() -> None:
    record = _measured(_model(2), None, "jacobian")
    facts = record.provenance["linear_maps"]["decoder"]
    assert facts["precision"] == "float32" and facts["kernel"].startswith("math, output agrees to")
    half = _measured(_model(2).bfloat16(), None, "jacobian")
    assert "float32 copies" in half.provenance["linear_maps"]["decoder"]["precision"]


def test_a_proved_anatomy_is_taken_as_it_is() -> None:
    model = _model(2)
    anatomy = leadline.anatomy_of(model)
    assert isinstance(anatomy, Anatomy)
    record = _measured(model, None, "jacobian", anatomy=anatomy)
    assert record.provenance["passes"]["anatomy_forward"] == 0
