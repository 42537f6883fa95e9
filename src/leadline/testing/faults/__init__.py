"""Sick models with known answers, and healthy ones, on which a diagnosis is tried.

A fault is put into a healthy model, the host; the answer says which causes a diagnosis may name
and where. Which of them rules may be tuned on stands in `leadline.testing.faults.split`.

    from leadline.testing.faults import FAULTS, cases, controls, make

    for fault, host, seed in cases("tuning"):
        case = make(fault, host, seed)
        print(ll.diagnose(case.model, case.inputs), case.answer)

Importing this loads neither torch nor transformers; looking up a fault and building a host do.
"""

from __future__ import annotations

from leadline.testing.faults.answer import Answer
from leadline.testing.faults.cases import FaultCase, cases, make
from leadline.testing.faults.controls import Control, control, control_names, controls
from leadline.testing.faults.fault import FAULTS, Fault
from leadline.testing.faults.hosts import all_hosts, host
from leadline.testing.faults.hosts.entry import Host

__all__ = ["FAULTS", "Answer", "Control", "Fault", "FaultCase", "Host"]
__all__ += ["all_hosts", "cases", "control", "control_names", "controls", "host", "make"]
