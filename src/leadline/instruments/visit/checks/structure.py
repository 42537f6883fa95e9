"""Which tensors are one and the same: tied by design, shared between layers, or copies of each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leadline.anatomy import configured_model
from leadline.instruments.visit.check import VisitFact, check
from leadline.instruments.visit.patient import Patient
from leadline.models.inputs.model_facts import token_embedding, vocabulary_size

__all__ = ["structure"]


@check(
    "structure",
    facts=(
        "tying", "shared", "clones", "frozen", "ends", "initializer", "missing", "unregistered",
        "repeated",
    ),
)  # fmt: skip
def structure(patient: Patient) -> Iterator[VisitFact]:
    """Facts about identity of tensors; none of them needs a pass."""
    model = patient.model
    yield VisitFact("ends", ends_of(model))
    yield VisitFact("tying", _tying(model, patient.twin))
    yield VisitFact("shared", _shared(patient))
    yield VisitFact("clones", _clones(patient))
    yield VisitFact("frozen", _frozen(model))
    yield VisitFact("initializer", _initializer(model))
    yield VisitFact("missing", list(patient.loaded_missing))
    yield VisitFact("unregistered", unregistered(model))
    yield VisitFact("repeated", _lone_blocks(patient))


def unregistered(model: nn.Module) -> list[dict[str, Any]]:
    """Modules and parameters that stand in plain lists, tuples or dicts: no child of their owner.

    A module that is registered elsewhere too is known to the optimizer all the same.
    """
    known = {id(one) for one in (*model.modules(), *model.parameters())}
    found: list[dict[str, Any]] = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            lost = [one for one in _contents(value) if id(one) not in known]
            count = sum(
                p.numel()
                for one in lost
                for p in (one.parameters() if isinstance(one, nn.Module) else [one])
            )
            if count:
                full = f"{path}.{name}" if path else name
                found.append({"name": full, "modules": len(lost), "values": count})
    return found


def _contents(value: object) -> list[Any]:
    """The modules and parameters in a plain container, not deeper than one container in another."""
    if isinstance(value, dict):
        value = list(value.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(value, list | tuple):
        return []
    flat: list[Any] = []
    for one in value:  # pyright: ignore[reportUnknownVariableType]
        flat += list(one) if isinstance(one, list | tuple) else [one]  # pyright: ignore[reportUnknownArgumentType]
    return [one for one in flat if isinstance(one, nn.Module | nn.Parameter)]


def _lone_blocks(patient: Patient) -> list[dict[str, Any]]:
    """Lists of one block that is called for every layer, with whether the twin does the same."""
    found: list[dict[str, Any]] = []
    for stack, paths in patient.rows.items():
        parent, _, _ = paths[0].rpartition(".")
        container = patient.model.get_submodule(parent) if parent else patient.model
        alone = isinstance(container, nn.ModuleList) and len(container) == 1
        if len(paths) > 1 and len(set(paths)) == 1 and alone:
            found.append(
                {"stack": stack, "list": parent, "module": paths[0], "calls": len(paths)}
                | {"twin": patient.twin is not None}
            )
    return found


def ends_of(model: nn.Module) -> dict[str, str]:
    """The paths of the token embedding's and the output head's weight, where they were found."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, str] = {}
    table = token_embedding(model)
    if table is not None:
        found["embedding"] = names.get(id(table.weight), "")
    head = head_of(model)
    if head is not None:
        found["head"] = _path_of(model, head)
    return {key: value for key, value in found.items() if value}


def head_of(model: nn.Module) -> nn.Module | None:
    """The module that makes logits over the vocabulary: what the model says, else by its size."""
    getter = getattr(configured_model(model), "get_output_embeddings", None)
    if callable(getter):
        try:
            named = getter()
        except (AttributeError, NotImplementedError):
            named = None
        if isinstance(named, nn.Module) and isinstance(getattr(named, "weight", None), Tensor):
            return named
    size = vocabulary_size(model)
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == size]
    return linear[-1] if linear and size else None


def _path_of(model: nn.Module, module: nn.Module) -> str:
    return next((f"{path}.weight" for path, one in model.named_modules() if one is module), "")


def _tying(model: nn.Module, twin: nn.Module | None) -> dict[str, Any]:
    """Whether embedding and head are one tensor, whether they are equal, and what was intended."""
    facts = _tied(model)
    if not facts:
        return {}
    if twin is not None:
        facts["twin_tied"] = _tied(twin).get("tied")
    config = getattr(configured_model(model), "config", None)
    text = getattr(config, "get_text_config", lambda: config)()
    flag = getattr(text, "tie_word_embeddings", None)
    facts["declared"] = flag if isinstance(flag, bool) else None
    return facts


def _tied(model: nn.Module) -> dict[str, Any]:
    table, head = token_embedding(model), head_of(model)
    if table is None or head is None:
        return {}
    first: Any = table.weight
    second: Any = head.weight
    if first.shape != second.shape or first.is_meta or second.is_meta:
        return {}
    tied = first is second or first.data_ptr() == second.data_ptr()
    ends = ends_of(model)
    return {
        "embedding": ends.get("embedding", ""),
        "head": ends.get("head", ""),
        "tied": tied,
        "equal": tied or bool(torch.equal(first, second)),
    }


def _shared(patient: Patient) -> list[dict[str, Any]]:
    """Tensors that stand in several layers of one stack as one object, by the names they have there."""
    twins = {} if patient.twin is None else _names_by_tensor(patient.twin)
    twin_groups = {tuple(names) for names in twins.values()}
    groups = list(_repeated_blocks(patient))
    for names in _names_by_tensor(patient.model).values():
        sites = [patient.site(name) for name in names]
        layers = sorted({site.layer for site in sites if site.layer})
        stacks = {site.stack for site in sites if site.layer}
        if len(layers) < 2 or len(stacks) != 1:
            continue
        groups.append(
            {
                "stack": next(iter(stacks)),
                "layers": layers,
                "names": names,
                "twin_shares": tuple(names) in twin_groups if patient.twin is not None else None,
            }
        )
    return groups


def _repeated_blocks(patient: Patient) -> Iterator[dict[str, Any]]:
    """Blocks that several names of the tree stand for: a list that repeats one module.

    A module that a loop calls again under its one name is shared by design.
    """
    names: defaultdict[int, list[str]] = defaultdict(list)
    for path, module in patient.model.named_modules(remove_duplicate=False):
        names[id(module)].append(path)
    for stack, paths in patient.rows.items():
        for path in dict.fromkeys(paths):
            layers = [at for at, other in enumerate(paths, start=1) if other == path]
            entries = names[id(patient.model.get_submodule(path))]
            if len(layers) < 2 or len(entries) < 2:
                continue
            yield {
                "stack": stack,
                "layers": layers,
                "names": entries,
                "twin_shares": _is_one(patient.twin, entries),
            }


def _is_one(twin: nn.Module | None, paths: list[str]) -> bool | None:
    """Whether the twin has one module under all these names; None where there is no twin."""
    if twin is None:
        return None
    modules = dict(twin.named_modules(remove_duplicate=False))
    return len({id(modules[path]) for path in paths if path in modules}) == 1


def _names_by_tensor(model: nn.Module) -> Mapping[int, list[str]]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return {key: group for key, group in names.items() if len(group) > 1}


def _clones(patient: Patient) -> list[dict[str, Any]]:
    """Groups of different tensors of one name in several layers that are equal to the last bit.

    Constant tensors are equal by design: fresh gains and biases.
    """
    by_point: defaultdict[tuple[str, str], list[tuple[int, str, Tensor]]] = defaultdict(list)
    for name, parameter in patient.model.named_parameters():
        site = patient.site(name)
        if site.layer and parameter.numel() > 1 and not parameter.is_meta:
            by_point[site.stack, site.point].append((site.layer, name, parameter.detach()))
    groups: list[dict[str, Any]] = []
    for (stack, point), tensors in by_point.items():
        alike: defaultdict[tuple[Any, ...], list[tuple[int, str, Tensor]]] = defaultdict(list)
        for one in tensors:
            alike[_fingerprint(one[2])].append(one)
        for same in alike.values():
            first = same[0][2]
            if len(same) < 2 or bool((first == first.flatten()[0]).all()):
                continue
            equal = [one for one in same if torch.equal(one[2], first)]
            if len(equal) > 1:
                groups.append(
                    {
                        "stack": stack,
                        "point": point,
                        "layers": [layer for layer, _, _ in equal],
                        "names": [name for _, name, _ in equal],
                        "values": first.numel(),
                        "twin": _equal_in(patient.twin, [name for _, name, _ in equal]),
                    }
                )
    return groups


def _equal_in(twin: nn.Module | None, names: list[str]) -> bool | None:
    """Whether the twin's tensors of these names are equal too: drawn without chance. None: no twin."""
    if twin is None:
        return None
    tensors = dict(twin.named_parameters(remove_duplicate=False))
    if any(name not in tensors for name in names):
        return None
    first = tensors[names[0]].detach()
    return all(torch.equal(tensors[name].detach(), first) for name in names)


def _fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """A few values at fixed places: equal tensors have the same, others almost never."""
    flat = tensor.reshape(-1)
    places = torch.linspace(0, flat.numel() - 1, min(16, flat.numel())).long()
    return (tuple(tensor.shape), *flat[places.to(flat.device)].double().tolist())


def _frozen(model: nn.Module) -> dict[str, Any]:
    """The parameters that do not require a gradient, and how many there are of all."""
    every = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
    return {
        "names": [name for name, p in every.items() if not p.requires_grad],
        "values": sum(p.numel() for p in every.values() if not p.requires_grad),
        "all": sum(p.numel() for p in every.values()),
        "parameters": len(every),
    }


def _initializer(model: nn.Module) -> dict[str, Any]:
    """The spread of fresh weights that the configuration names, and the one its class has by itself."""
    config = getattr(configured_model(model), "config", None)
    text = getattr(config, "get_text_config", lambda: config)()
    for name in ("initializer_range", "init_std", "initializer_factor", "initializer_std"):
        value = getattr(text, name, None)
        if isinstance(value, int | float):
            try:
                usual = getattr(type(text)(), name, None)
            except Exception:  # a configuration class without defaults has nothing to compare with
                usual = None
            return {"name": name, "value": float(value), "usual": usual}
    return {}
