"""The hosts: small models of many families, as they are initialised, and a few trained ones.

Width 64, six to eight layers, so that every layer has neighbours, and a vocabulary of 200; the
weights are those that the library itself draws. Trained hosts predict bytes of Python's standard
library and get text of it that they were not trained on.
"""

from __future__ import annotations

from leadline.testing.faults.hosts.building import build_hf, build_part, build_recipe
from leadline.testing.faults.hosts.entry import Host
from leadline.testing.faults.hosts.families import VOCABULARY
from leadline.testing.faults.hosts.inputs import drawn_inputs, text_inputs
from leadline.testing.faults.hosts.lookup import all_hosts, host, hosts_of_round

__all__ = ["VOCABULARY", "Host", "all_hosts", "build_hf", "build_part", "build_recipe"]
__all__ += ["drawn_inputs", "host", "hosts_of_round", "text_inputs"]
