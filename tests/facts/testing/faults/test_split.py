"""The split of faults, hosts and controls, which was written before the rules."""

import hashlib
import subprocess
import sys
from collections import Counter

from leadline.testing.faults import FAULTS, all_hosts, cases, controls, split

CAUSES = """
residual-missing residual-doubled residual-from-wrong-point write-lost residual-weight-odd
residual-scale-wrong norm-missing norm-misplaced norm-gain-shifted norm-gain-small norm-eps-large
norm-gain-odd weights-zero weights-scale-odd layers-cloned tying-broken weights-foreign
weights-layout-wrong weights-quantised weights-low-rank buffer-wrong weights-not-finite
init-too-large init-too-small depth-scale-missing embedding-scale-wrong output-head-too-large
parameters-unused modules-shared heads-equal gradient-cut parameters-frozen gradient-vanishing
gradient-exploding stream-exploding write-dead tokens-equal writes-drowned depth-unused
first-writes-too-large attention-scale-wrong attention-saturated attention-uniform future-leaks
past-unreached positions-unused positions-wrong examples-mixed attention-sinks mask-row-empty
heads-split-wrong softmax-axis-wrong float16-overflow bfloat16-write-loss massive-activations
not-finite rotary-precision loss-worse-than-uniform loss-worse-than-unigram logit-drift
random-in-evaluation adapter-cannot-learn lanes-gain lanes-equal experts-unused write-harmful
"""


def names(strata):
    return [name for stratum in strata.values() for name in stratum]


def test_no_name_has_changed_its_side():
    """The digest of all names with their sides, as it was before there was any rule."""
    lines = [f"fault {name} {split.side_of_fault(name)}" for name in names(split.FAULTS)]
    lines += [f"host {name} {split.side_of_host(name)}" for name in names(split.HOSTS)]
    lines += [
        f"control {kind}/{name} {split.side_of_control(f'{kind}/{name}')}"
        for kind, group in split.CONTROLS.items()
        for name in group
    ]
    digest = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    assert digest == "289fda3e43b4a5ccaf315a543a896b4dc40c92b345fe86f106c51119b585310f"


def test_every_fault_of_the_split_is_there_and_no_other():
    assert sorted(names(split.FAULTS)) == FAULTS.names()


def test_there_are_enough_of_all_on_both_sides():
    assert len(FAULTS) >= 60
    assert len(all_hosts()) >= 20
    for side in split.SIDES:
        assert 150 <= len(cases(side)) <= 200
        assert len(controls(side)) >= 85
    faults = Counter(map(split.side_of_fault, FAULTS))
    assert abs(faults["tuning"] - faults["held-out"]) <= 1


def test_nearly_every_cause_has_faults_on_both_sides():
    both = [
        {split.side_of_fault(name) for name in stratum} == set(split.SIDES)
        for stratum in split.FAULTS.values()
    ]
    assert all(both)


def test_the_tuning_side_never_meets_a_fault_or_a_host_of_the_other():
    for fault, host, _ in cases("tuning"):
        assert split.side_of_fault(fault) == split.side_of_host(host) == "tuning"


def test_the_held_out_side_has_three_kinds_of_cases_and_none_of_the_tuning_side():
    kinds = Counter(
        (split.side_of_fault(fault), split.side_of_host(host))
        for fault, host, _ in cases("held-out")
    )
    assert set(kinds) == {
        ("tuning", "held-out"),
        ("held-out", "tuning"),
        ("held-out", "held-out"),
    }
    assert min(kinds.values()) >= 40
    assert not set(cases("tuning")) & set(cases("held-out"))


def test_a_name_outside_of_the_split_has_a_side_of_its_own():
    assert split.side_of_fault("a fault of a plug-in") in split.SIDES
    sides = Counter(split.side_of_host(f"host {i}") for i in range(200))
    assert min(sides.values()) > 60  # a fair coin falls below once in a hundred million


def test_the_causes_of_faults_are_names_of_rules():
    unknown = {cause for _, fault in FAULTS.items() for cause in fault.causes} - set(CAUSES.split())
    assert not unknown
    assert all(fault.causes for _, fault in FAULTS.items())


def test_names_can_be_listed_without_torch():
    script = (
        "import sys; from leadline.testing.faults import all_hosts, control_names, split, FAULTS;"
        "all_hosts(); control_names('tuning'); split.side_of_fault('mlp-zero');"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
