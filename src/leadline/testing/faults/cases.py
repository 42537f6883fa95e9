"""Cases: a fault in a host with a seed, and which of them each side has.

    case = make("mlp-zero", "gpt2", seed=3)
    case.model, case.inputs, case.answer

The tuning side pairs every one of its faults with a few of its hosts. The held-out side pairs known
faults with new hosts, new faults with known hosts, and new faults with new hosts. Which hosts a
fault gets is decided by digests of both names. A fresh round puts every fault of the first round,
and its own kinds, into hosts of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.testing.faults.answer import Answer
from leadline.testing.faults.fault import FAULTS, find_fault
from leadline.testing.faults.fresh.rounds import AGAIN, ROUNDS, Round, case_key, case_seed, names_in
from leadline.testing.faults.hosts import all_hosts, host, hosts_of_round
from leadline.testing.faults.split import Side, digest, side_of_fault, side_of_host

if TYPE_CHECKING:
    from torch import nn

    from leadline.models.inputs import Inputs

__all__ = ["FaultCase", "cases", "make"]

Triple = tuple[str, str, int]

TUNING_HOSTS = 3
"""How many hosts a fault of the tuning side is put into."""
ROUND_HOSTS = 2
"""How many hosts of a fresh round a fault is put into."""


@dataclass(frozen=True, eq=False)
class FaultCase:
    """A sick model with its inputs, and what a diagnosis should say of it."""

    fault: str
    host: str
    seed: int
    model: nn.Module
    inputs: Inputs
    answer: Answer

    @property
    def name(self) -> str:
        """Fault, host and seed."""
        return f"{self.fault}/{self.host}/{self.seed}"


def make(fault: str, host_name: str, seed: int = 0) -> FaultCase:
    """Build a host, put a fault into it, and draw inputs."""
    entry, patient = find_fault(fault), host(host_name)
    healthy = patient.build(seed)
    inputs = patient.inputs(healthy, seed + 1)
    model, answer = entry.apply(healthy, patient, seed)
    return FaultCase(fault, host_name, seed, model, inputs, answer)


def cases(side: Side | Round) -> list[Triple]:
    """Every (fault, host, seed) of a side or of a fresh round."""
    if side in ("round-2", "round-3", "round-4"):
        return _round(side)
    if side == "tuning":
        return [
            triple
            for fault in FAULTS
            if side_of_fault(fault) == "tuning"
            for triple in _some(fault, "tuning", TUNING_HOSTS)
        ]
    triples: list[Triple] = []
    for fault in FAULTS:
        if side_of_fault(fault) == "held-out":
            triples += _some(fault, "tuning", 1)
        triples += _some(fault, "held-out", 1)
    return triples


def _round(side: Round) -> list[Triple]:
    # A host of round 4 gets faults that it did not have before, where enough of them fit.
    dealt = ROUNDS if side == "round-4" else ()
    had = {(fault, AGAIN + name) for one in dealt for fault, name, _ in _round(one)}
    hosts = hosts_of_round(side)
    triples: list[Triple] = []
    for fault in [*FAULTS, *names_in(side, of="faults")]:
        pairs = [(fault, one.name) for one in hosts if find_fault(fault).fits(one)]
        pairs.sort(key=lambda pair: (pair in had, case_key(*pair)))
        triples += [(*pair, case_seed(*pair)) for pair in pairs[:ROUND_HOSTS]]
    return triples


def _some(fault: str, host_side: Side, count: int) -> list[Triple]:
    """The hosts of a side that the digests choose for a fault, each with its seed."""
    fits = FAULTS.get(fault).fits
    names = [one.name for one in all_hosts() if side_of_host(one.name) == host_side and fits(one)]
    names.sort(key=lambda name: digest(f"{fault} {name}"))
    return [(fault, name, digest(f"{fault} {name} seed") % 1000) for name in names[:count]]
