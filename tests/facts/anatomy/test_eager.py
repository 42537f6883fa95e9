"""Compiled regions run eagerly inside of `eagerly`, also those that are compiled only there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from leadline.anatomy.eager import eagerly

COMPILED = """
import sys
import torch
from leadline.anatomy.eager import eagerly

graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

assert "torch._dynamo" not in sys.modules
original = torch.compile
with eagerly(), eagerly():
    doubled = torch.compile(lambda x: 2 * x, backend=backend)
    inside = doubled(torch.ones(2)).tolist(), len(graphs)
assert torch.compile is original
print(inside, doubled(torch.ones(2)).tolist(), len(graphs))
"""


def test_what_is_compiled_meanwhile_runs_eagerly_and_compiled_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "([2.0, 2.0], 0) [2.0, 2.0] 1"


def test_what_was_compiled_before_runs_eagerly() -> None:
    graphs: list[object] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    doubled = torch.compile(lambda x: 2 * x, backend=backend)  # pyright: ignore
    with eagerly():
        doubled(torch.ones(2))
    assert not graphs


def test_nothing_stands_for_compile_after_an_exception() -> None:
    original = torch.compile
    with pytest.raises(KeyError), eagerly():
        raise KeyError
    assert torch.compile is original
