"""Tell by digests whether a model, a loss function and a declaration are the same as before.

An interrupted measurement continues only with what it began with. Weights alone do not show that: the
number of heads, an activation or a scale change what a model computes and leave its weights alone.

    digest_of           names, shapes, number types and contents of all weights and buffers
    structure_of        the modules as they print themselves, their configurations and recipes, and
                        the numbers, words, tensors and functions that they keep under public
                        names
    described           of a function: its module, its name, its code, what it closes over, and its
                        default values; of an object: its class and its attributes

Not included: the code of modules' own methods, what a function reads from global names (other
functions that it calls are included by name alone), and attributes that begin with an underscore. A
module that counts its calls in a public number, or keeps a tensor of its last one, has another
digest after each call.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from leadline.anatomy import Anatomy, Declaration

__all__ = ["declared_digest", "described", "digest_of", "function_facts", "structure_of"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_WHEREABOUTS = frozenset({"_name_or_path", "name_or_path", "transformers_version"})
"""Entries of a configuration that say where it came from, not what it is."""
_DEEPEST = 8
"""Objects nested deeper than this count by their class alone; references may be circular."""
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def digest_of(module: nn.Module) -> str:
    """SHA-256 of all weights and buffers: names, shapes, number types and contents."""
    total = hashlib.sha256(type(module).__name__.encode())
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        if values.numel():
            total.update(memoryview(values.view(torch.uint8).numpy()))
    return total.hexdigest()


def structure_of(module: nn.Module) -> str:
    """SHA-256 of a model's modules, configurations and public attributes, without its weights."""
    lines = [_ADDRESS.sub("", repr(module))]
    visited: set[int] = set()
    for path, inner in module.named_modules():
        lines.append(f"{path} {type(inner).__module__}.{type(inner).__qualname__}")
        for name, value in sorted(vars(inner).items(), key=lambda item: item[0]):
            if name in _MODULE_ATTRIBUTES or name.startswith("_"):
                continue
            text = _attribute_text(value, visited)
            if text is not None:
                lines.append(f"{path}.{name} {text}")
    return _digest("\n".join(lines))


def function_facts(function: Callable[..., Any]) -> dict[str, str]:
    """Module, name and digest of a loss function; `described` says what the digest covers."""
    kind = type(function)
    return {
        "module": str(getattr(function, "__module__", kind.__module__)),
        "name": str(getattr(function, "__qualname__", kind.__qualname__)),
        "digest": _digest(described(function)),
    }


def declared_digest(anatomy: Anatomy | Declaration | None) -> str | None:
    """SHA-256 of what was declared; the balance of an anatomy is a finding and no part of it."""
    if anatomy is None:
        return None
    if isinstance(anatomy, Anatomy):
        content: object = dataclasses.replace(anatomy, balance=None).to_json()
    else:
        content = dataclasses.asdict(anatomy)
    return _digest(json.dumps(content, sort_keys=True))


def described(value: object, depth: int = 0) -> str:
    """A text that is the same in every process for the same value."""
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, type | types.ModuleType):
        return (
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
        )
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, nn.Module):
        return f"{structure_of(value)} {digest_of(value)}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if depth > _DEEPEST:
        return kind
    parts = _parts(value)
    if parts is None:
        return f"{kind} {_ADDRESS.sub('', repr(value))}"
    texts = [described(part, depth + 1) for part in parts]
    if isinstance(value, set | frozenset | Mapping):
        texts.sort()
    return f"{kind}({', '.join(texts)})"


def _parts(value: Any) -> list[Any] | None:
    """What a value is made of; None where nothing can be looked into."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, types.CodeType):
        # Without the names, x.sum() and x.mean() are one code.
        return [value.co_code, value.co_consts, value.co_names, value.co_freevars]
    if isinstance(value, types.FunctionType):
        closed = [_content(cell) for cell in value.__closure__ or ()]
        name = f"{value.__module__}.{value.__qualname__}"
        return [name, value.__code__, closed, value.__defaults__, value.__kwdefaults__]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.BuiltinFunctionType):
        return [value.__module__, value.__qualname__]
    attributes = getattr(value, "__dict__", None)
    if not attributes:
        return None
    return sorted(attributes.items(), key=lambda item: item[0])


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is given its value later
        return "empty"


def _attribute_text(value: object, visited: set[int]) -> str | None:
    """An attribute of a module, if it says what the module computes; one configuration once."""
    if value is None or isinstance(value, (*_PLAIN, *_FUNCTIONS, torch.Tensor)):
        return described(value)
    if isinstance(value, list | tuple) and all(isinstance(one, _PLAIN) for one in value):
        return described(value)
    if isinstance(value, nn.Module | type) or id(value) in visited:
        return None
    teller = getattr(value, "to_dict", None) or getattr(value, "to_json", None)
    if not callable(teller):
        return None
    visited.add(id(value))
    content = teller()
    if isinstance(content, Mapping):
        content = {str(key): one for key, one in content.items() if key not in _WHEREABOUTS}
        # Which attention it is, is no part of what a configuration saves.
        content["_attn_implementation"] = getattr(value, "_attn_implementation", None)
    return json.dumps(content, sort_keys=True, default=described)


def _tensor(tensor: torch.Tensor) -> str:
    values = tensor.detach().cpu().contiguous().reshape(-1)
    content = values.view(torch.uint8).numpy().tobytes() if values.numel() else b""
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(content).hexdigest()}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
