"""What a model says of itself: its family, settings, norms, tied tables, a head for tokens.

Fact `design`:
    model_type, settings   of the configuration, those that rules know
    output_head            whether the output has one number per token of the vocabulary
    tied                   whether the head and the embedding are one tensor; None without both
    norms                  by stack, the kinds of norms in its blocks: layernorm, rmsnorm, other
    norm_eps               by stack, the eps of norms inside blocks, by name in the block
    idle_norms             norms outside of blocks that did not run
    entry_norm             by stack, whether what enters the first block comes out of a norm
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from leadline.anatomy.tensors import first_tensor, stream_input
from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.instruments.visit.small_pass import SmallPass
from leadline.models.inputs.logits import find_logits
from leadline.models.inputs.model_facts import ids_name, text_configuration, token_embedding
from leadline.parts import Transformer

SETTINGS = (
    "num_hidden_layers", "n_layer", "num_layers", "hidden_size", "n_embd", "tie_word_embeddings",
    "residual_multiplier", "use_parallel_residual", "parallel_attn", "layer_norm_eps",
    "layer_norm_epsilon", "rms_norm_eps", "norm_epsilon", "initializer_range",
)  # fmt: skip


@check("design", facts=("design",), pass_cost=0.4)
def design(patient: Patient) -> Iterator[VisitFact]:
    """Ask the configuration and one small pass."""
    model = patient.model
    config = text_configuration(model)
    seen = patient.small_pass()
    ids = patient.ids
    logits = None if ids is None else find_logits(seen.result, model, tuple(ids.shape))
    yield VisitFact(
        "design",
        {
            "model_type": getattr(config, "model_type", None),
            "settings": {
                name: value
                for name in SETTINGS
                if isinstance(value := getattr(config, name, None), bool | int | float)
            },
            "declared_norm": _declared_norm(model),
            "ids_name": ids_name(model),
            "output_head": logits is not None,
            "tied": _tied(model, None if logits is None else logits.shape[-1]),
            "norms": {stack: _kinds(model, paths) for stack, paths in patient.rows.items()},
            "norm_eps": {stack: _epsilons(model, paths) for stack, paths in patient.rows.items()},
            "idle_norms": _idle(patient, seen),
            "entry_norm": {
                stack: _normed_entry(seen, paths[0]) for stack, paths in patient.rows.items()
            },
        },
    )


def _declared_norm(model: nn.Module) -> str | None:
    """The norm of a recipe; some (DyT, Derf) are no norms by the name of their class."""
    return model.recipe.choice("norm").name if isinstance(model, Transformer) else None


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _kind(module: nn.Module) -> str:
    name = type(module).__name__.lower()
    if "rms" in name or name.endswith(("t5layernorm",)):
        return "rmsnorm"
    return "layernorm" if "layernorm" in name else "other"


def _kinds(model: nn.Module, paths: tuple[str, ...]) -> list[str]:
    """The kinds of norms that are as wide as the stream; those of queries and keys are narrower."""
    kinds: set[str] = set()
    for path in paths[:1]:
        block = model.get_submodule(path)
        norms = [module for module in block.modules() if _is_norm(module)]
        widest = max((_width(module) for module in norms), default=0)
        kinds |= {_kind(module) for module in norms if _width(module) == widest}
    return sorted(kinds)


def _width(module: nn.Module) -> int:
    return max((p.numel() for p in module.parameters(recurse=False)), default=0)


def _epsilons(model: nn.Module, paths: tuple[str, ...]) -> dict[str, list[float | None]]:
    """The eps of each norm of the blocks, by name in the block, layer by layer."""
    table: dict[str, list[float | None]] = {}
    for index, path in enumerate(paths):
        for name, module in model.get_submodule(path).named_modules():
            if _is_norm(module):
                values = [getattr(module, word, None) for word in ("eps", "variance_epsilon")]
                value = next((float(v) for v in values if isinstance(v, float)), None)
                table.setdefault(name, [None] * len(paths))[index] = value
    return table


def _tied(model: nn.Module, vocabulary: int | None) -> bool | None:
    table = token_embedding(model)
    if table is None or vocabulary is None:
        return None
    heads = [
        parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.shape == table.weight.shape
    ]
    if not heads:
        return None
    shared = [one for one in heads if one.data_ptr() == table.weight.data_ptr()]
    return len(shared) > 1 or (len(heads) == 1)


def _idle(patient: Patient, seen: SmallPass) -> list[str]:
    called = {one.path for one in seen.calls}
    blocks = [path for paths in patient.rows.values() for path in paths]
    return [
        path
        for path, module in patient.model.named_modules()
        if _is_norm(module)
        and path not in called
        and not any(path.startswith(f"{block}.") for block in blocks)
    ]


def _normed_entry(seen: SmallPass, first: str) -> bool:
    """Whether what enters the first block is what a norm before it returned."""
    at = next((i for i, one in enumerate(seen.calls) if one.path == first), None)
    if at is None:
        return False
    block = seen.calls[at]
    entered = stream_input(block.arguments, block.named, like=_shape(first_tensor(block.output)))
    if entered is None:
        entered = stream_input(block.arguments, block.named)
    if entered is None:
        return False
    return any(
        _is_norm(one.module)
        and (returned := first_tensor(one.output)) is not None
        and returned.shape == entered.shape
        and torch.equal(returned, entered)
        for one in seen.calls[:at]
    )


def _shape(tensor: torch.Tensor | None) -> torch.Size | None:
    return None if tensor is None else tensor.shape
