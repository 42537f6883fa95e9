"""The fresh rounds: names closed and dealt, hosts and controls healthy, cases of the first round kept."""

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from leadline.testing.faults import FAULTS, cases, control, control_names, controls, host, split
from leadline.testing.faults.fault import FRESH_FAULTS, find_fault
from leadline.testing.faults.fresh import rounds
from leadline.testing.faults.hosts import hosts_of_round
from leadline.testing.faults.subject import Subject
from tests.facts.testing.faults.test_controls import check as check_control
from tests.facts.testing.faults.test_hosts import check_training, logits
from tests.facts.testing.faults.test_split import CAUSES, names

HOSTS = [one for side in rounds.ROUNDS for one in hosts_of_round(side)]
QUICK = [one for one in HOSTS if not one.trained]
# One in three, whatever has to be trained first left out.
CONTROLS = [
    name
    for side in rounds.ROUNDS
    for name in control_names(side)[::9]
    if "trained" not in name and "resized_type" not in name and "host/" not in name
] + ["resized_type/qwen3", "resized_type/bart", "sound_design/bfloat16-plain-llama"]


def test_no_name_has_changed_its_round():
    """The digest of all names with their rounds, as it was before the rules changed."""
    lines = [
        f"{kind} {name} {side}"
        for side in rounds.ROUNDS
        for kind in ("faults", "hosts", "controls")
        for name in rounds.names_in(side, of=kind)
    ]
    assert hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest() == NAMES


def test_the_cases_of_a_round_are_closed():
    text = repr([cases(side) for side in rounds.ROUNDS])
    assert hashlib.sha256(text.encode()).hexdigest() == CASES


def test_the_cases_of_the_first_round_are_as_they_were():
    text = repr([cases("tuning"), cases("held-out"), control_names()])
    assert hashlib.sha256(text.encode()).hexdigest() == FIRST


def test_no_fresh_name_was_in_the_first_round():
    assert sorted(names(rounds.FAULTS)) == FRESH_FAULTS.names()
    assert not set(names(rounds.FAULTS)) & set(FAULTS.names())
    assert not set(names(rounds.HOSTS)) & set(names(split.HOSTS))
    fresh = [name for side in rounds.ROUNDS for name in control_names(side)]
    assert not set(fresh) & set(control_names())
    assert len(set(fresh)) == len(fresh)


def test_every_stratum_is_dealt_to_both_rounds():
    for strata, round_of in (
        (rounds.FAULTS, rounds.round_of_fault),
        (rounds.HOSTS, rounds.round_of_host),
    ):
        for stratum in strata.values():
            counts = Counter(map(round_of, stratum))
            assert counts["round-2"] == counts["round-3"]
    assert rounds.round_of_host("gpt2") is None
    assert rounds.round_of_fault("mlp-zero") is None
    assert rounds.round_of_control("host/gpt2") is None


@pytest.mark.parametrize("side", rounds.ROUNDS)
def test_there_are_enough_of_all_in_a_round(side):
    assert len(hosts_of_round(side)) >= 14
    assert sum(one.trained for one in hosts_of_round(side)) >= 3
    assert len(rounds.names_in(side, of="faults")) >= 12
    assert len(controls(side)) >= 90
    assert 200 <= len(cases(side)) <= 300


@pytest.mark.parametrize("side", rounds.ROUNDS)
def test_a_round_puts_every_old_fault_and_its_own_kinds_into_two_of_its_hosts(side):
    triples = cases(side)
    counts = Counter(fault for fault, _, _ in triples)
    assert set(counts) == {*FAULTS, *rounds.names_in(side, of="faults")}
    for fault, count in counts.items():
        fitting = [one for one in hosts_of_round(side) if find_fault(fault).fits(one)]
        assert count == min(2, len(fitting))
    assert all(rounds.round_of_host(name) == side for _, name, _ in triples)
    assert len(set(triples)) == len(triples)


def test_round_4_is_closed():
    text = repr([cases("round-4"), control_names("round-4")])
    assert hashlib.sha256(text.encode()).hexdigest() == ROUND_4


def test_a_fault_of_round_4_is_in_hosts_that_did_not_have_it_as_far_as_there_are_any():
    had = {(fault, f"again-{name}") for side in rounds.ROUNDS for fault, name, _ in cases(side)}
    triples = cases("round-4")
    chosen = {(fault, name) for fault, name, _ in triples}
    assert {fault for fault, _ in chosen} == {*FAULTS, *FRESH_FAULTS.names()}
    for fault, _ in chosen & had:
        fitting = {
            (fault, one.name) for one in hosts_of_round("round-4") if find_fault(fault).fits(one)
        }
        assert fitting - had <= chosen
    assert len(chosen - had) > 0.9 * len(chosen)
    assert len(control_names("round-4")) >= 80


@pytest.mark.parametrize(
    "one", [one for one in hosts_of_round("round-4") if not one.trained], ids=lambda one: one.name
)
def test_a_host_of_round_4_has_another_size_than_before(one):
    sizes = [
        [tuple(each.shape) for each in which.build(0).parameters()]
        for which in (one, host(one.name.removeprefix("again-")))
    ]
    assert sizes[0] != sizes[1]


def test_the_causes_of_fresh_faults_are_names_of_rules():
    causes = {cause for _, fault in FRESH_FAULTS.items() for cause in fault.causes}
    assert causes <= set(CAUSES.split())


def test_fresh_names_can_be_listed_without_torch():
    script = (
        "import sys; from leadline.testing.faults import control_names;"
        "from leadline.testing.faults.hosts import hosts_of_round;"
        "hosts_of_round('round-2'); control_names('round-3');"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_benchmark_knows_the_rounds_by_name(monkeypatch):
    benchmarks = Path(__file__).parents[4] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    monkeypatch.syspath_prepend(str(benchmarks / "scores"))
    import score_diagnosis as bench

    listed = [name for name, _ in bench.cases("round-3")]
    assert listed == ["/".join(map(str, triple)) for triple in cases("round-3")]
    listed = [name for name, _ in bench.cases("round-2 controls")]
    assert listed == [f"control/{name}" for name in control_names("round-2")]
    with pytest.raises(ValueError, match="round-2"):
        bench.cases("round-5")


# --- hosts ------------------------------------------------------------------------------------


def check_host(healthy):
    model = healthy.build(3)
    inputs = healthy.inputs(model, 1)
    assert not model.training
    assert torch.isfinite(logits(model, inputs)).all()
    assert torch.equal(logits(model, inputs), logits(healthy.build(3), inputs))
    subject = Subject(model, healthy, 0, fault="")
    assert 4 <= subject.depth <= 16
    width = subject.weight(1, "output").shape[0]
    assert 48 <= width <= 128
    query = subject.by_head(subject.weight(2, "query"))
    assert query.shape == (subject.heads, subject.head_width, width)
    assert subject.weight(2, "key").shape == subject.weight(2, "value").shape
    # Every matrix of a block is in the layout, and none twice.
    matrices = sum(subject.weight(2, role).numel() for role in subject.matrices)
    named = subject.block(2).named_parameters()
    assert matrices == sum(p.numel() for n, p in named if p.ndim == 2 and "connection" not in n)
    assert all(norm.weight.shape == (width,) for _, _, norm in subject.norms())
    head = subject.outer("head").weight
    assert (head is subject.outer("embedding").weight) == healthy.has("tied")
    grouped = len(subject.by_head(subject.weight(2, "key"))) < subject.heads
    assert grouped >= healthy.has("grouped")
    if healthy.has("mlp-bias"):
        assert subject.bias(2, "up") is not None


@pytest.mark.parametrize("healthy", QUICK[::4], ids=lambda one: one.name)
def test_a_fresh_host_is_as_large_as_its_layout_says(healthy):
    check_host(healthy)


@pytest.mark.slow
@pytest.mark.parametrize("healthy", HOSTS, ids=lambda one: one.name)
def test_every_fresh_host_is_as_large_as_its_layout_says(healthy):
    check_host(healthy)
    if healthy.trained:
        check_training(healthy)


def test_values_of_fused_matrices_are_those_that_the_model_computes():
    """BigCode fuses by head, Phi-3 in groups, the plain encoder hands its matrix to torch."""
    for name in ("gpt_bigcode", "phi3", "plain-encoder"):
        healthy = host(name)
        model = healthy.build(0)
        subject = Subject(model, healthy, 0, fault="")
        inputs = healthy.inputs(model, 1)
        before = logits(model, inputs)
        # Zero values in all heads and layers leave the attention its output bias alone.
        with torch.no_grad():
            for layer in subject.layers:
                for tensor in (subject.weight(layer, "value"), subject.bias(layer, "value")):
                    if tensor is not None:
                        tensor.zero_()
        without = logits(model, inputs)
        with torch.no_grad():
            for layer in subject.layers:
                subject.weight(layer, "output").zero_()
        assert not torch.equal(before, without)
        assert torch.equal(without, logits(model, inputs))


# --- controls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTROLS)
def test_a_fresh_control_runs(name):
    check_control(name)


@pytest.mark.slow
@pytest.mark.parametrize("side", rounds.ROUNDS)
def test_every_fresh_control_runs(side):
    for name in control_names(side):
        check_control(name)


def test_resized_controls_have_other_sizes_than_those_of_the_first_round():
    small, large = control("default/phi3").build(0), control("resized_type/phi3").build(0)
    assert small.config.hidden_size != large.config.hidden_size
    assert small.config.num_hidden_layers != large.config.num_hidden_layers
    small, large = (
        control(f"{kind}/rezero").build(0) for kind in ("connection", "resized_connection")
    )
    assert small.recipe.depth != large.recipe.depth
    assert small.recipe.width != large.recipe.width


def test_half_precision_leaves_the_frequencies_of_a_fresh_control_exact():
    for name in ("smollm3", "plain-llama"):
        model = control(f"sound_design/bfloat16-{name}").build(0)
        assert all(p.dtype == torch.bfloat16 for p in model.parameters())
        buffers = [b for n, b in model.named_buffers() if n.endswith("inv_freq")]
        assert buffers
        assert all(b.dtype == torch.float32 for b in buffers)


NAMES = "1f6d8e6c6bb964a1fe88aeb943dcf56d0ae9526aa58f948df206559821977a98"
CASES = "ac30286600605cb9c274f6ce37b9d2575278e2858200aa51134ea549c8541398"
FIRST = "4442f0e407ee4f0af27ef6de03492fa20159c782e6f13aa4eed7dca00f606a58"
ROUND_4 = "f0b9da5467e98be83e5abc6b3c27cea902f2f7ad82ffb3ee9e10605eadb0b22c"
