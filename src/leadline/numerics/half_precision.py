"""Whether this processor can multiply in half precision, and by which route.

torch multiplies bfloat16 and float16 on the CPU through oneDNN, which uses AMX where the processor
advertises it. Some virtual machines advertise AMX and do not allow it: the first product then ends
the process with SIGILL, which Python cannot catch. So it is tried in a forked copy of this process,
but only where AMX is advertised and half precision is about to be used.

A fork, not a new interpreter: oneDNN chooses its instructions at its first use, which may be a
product in float32, and keeps them. The copy has made the same choice as this process, or has not
chosen yet either, so its fate is what would happen here. It also takes milliseconds instead of the
seconds of `import torch`.

ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 keeps every instruction below AMX. It is set where that helps,
and only there: a processor whose AMX works keeps its speed. Where oneDNN has already chosen, only
a new process with that variable helps, and half precision is refused.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from leadline.errors import MachineError

__all__ = ["VARIABLE", "half_route", "multiplies_in_half", "prepare_half_products"]

VARIABLE = "ONEDNN_MAX_CPU_ISA"
"""The environment variable by which oneDNN is kept below an instruction set."""
BELOW_AMX = "AVX512_CORE_FP16"
"""The largest instruction set of oneDNN that has no AMX."""
HALF = (torch.bfloat16, torch.float16)

_PATIENCE = 120
"""Seconds for one small product: a copy that takes longer hangs on a lock of its parent."""

_known_route: str | None = None


def half_route(module: nn.Module) -> str | None:
    """How half-precision products of this model are computed on the CPU; None if it has none.

    Raises MachineError where they would end the process.
    """
    if not multiplies_in_half(module):
        return None
    route = prepare_half_products()
    tensors = [*module.parameters(), *module.buffers()]
    without_onednn = [dtype for dtype in HALF if not _goes_through_onednn(dtype)]
    if any(tensor.dtype in without_onednn for tensor in tensors):
        return "torch's own kernels, without oneDNN"
    return route


def multiplies_in_half(module: nn.Module) -> bool:
    """Whether the model computes in half precision on the CPU.

    By its weights, by autocast, or because float32 products were allowed to round to bfloat16
    (`torch.set_float32_matmul_precision("medium")`).
    """
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    if torch.is_autocast_enabled("cpu") or getattr(matmul, "fp32_precision", "") == "bf16":
        return True
    return _any_half(module.parameters()) or _any_half(module.buffers())


def prepare_half_products() -> str:
    """Make half-precision products safe in this process, and say by which route they go.

    Call it before the first product. The answer is remembered; a refusal is a MachineError that
    names the variable to set.
    """
    global _known_route  # noqa: PLW0603 - what a processor can do does not change
    if _known_route is None:
        _known_route = _find_route()
    return _known_route


def _find_route() -> str:
    limit = os.environ.get(VARIABLE)
    if not _advertises_amx() or _product_survives():
        amx = "with AMX" if _advertises_amx() else "without AMX"
        return f"oneDNN with {VARIABLE}={limit}" if limit else f"oneDNN {amx}"
    if not limit:
        os.environ[VARIABLE] = BELOW_AMX
        if _product_survives():
            return f"oneDNN with {VARIABLE}={BELOW_AMX}, because AMX is advertised but fails"
        del os.environ[VARIABLE]
    raise MachineError(
        "Half precision was requested, but a half-precision product would end the process on this "
        "machine: the processor advertises AMX, and the system does not allow it. Start again with "
        f"{VARIABLE}={BELOW_AMX} in the environment, or use float32 (--dtype float32)."
    )


def _goes_through_onednn(dtype: torch.dtype) -> bool:
    """Whether torch hands products of this type to oneDNN on this processor."""
    name = {torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]
    # A private operator of torch; a version that lacks it is taken to use oneDNN.
    ask = getattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported", None)
    return ask is None or bool(ask())


def _any_half(tensors: Iterable[torch.Tensor]) -> bool:
    return any(tensor.dtype in HALF and tensor.device.type == "cpu" for tensor in tensors)


def _advertises_amx() -> bool:
    """Whether the processor or the kernel names AMX. The two may disagree, so either will do."""
    if sys.platform != "linux":
        return False  # the defect is known on Linux alone, and only there is a fork safe
    # A private function of torch; the list of the kernel stands in where a version lacks it.
    ask = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    if ask():
        return True
    with contextlib.suppress(OSError):
        return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return False


def _product_survives() -> bool:
    """Whether a forked copy of this process outlives products in both half-precision types."""
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork beside threads. The copy touches one product and leaves.
        warnings.simplefilter("ignore", DeprecationWarning)
        question, answer = os.pipe()
        try:
            child = os.fork()
        except OSError as error:
            os.close(question)
            os.close(answer)
            raise MachineError(
                "Half precision was requested on a processor whose AMX may not be usable, and "
                f"Leadline could not try it safely ({error.strerror}). Start again with "
                f"{VARIABLE}={BELOW_AMX} in the environment."
            ) from error
    if child == 0:
        _multiply_and_leave(answer)
    os.close(answer)
    try:
        # Not the exit code: a program that ignores SIGCHLD never receives it.
        return os.read(question, len(_ALIVE)) == _ALIVE
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(question)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


_ALIVE = b"alive"


def _multiply_and_leave(answer: int) -> None:
    """In the copy: multiply, say so, and leave without the clean-up that belongs to the parent."""
    try:
        import resource  # not on Windows, which never comes here

        faulthandler.disable()  # the expected death must not print a report, nor leave a core file
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGILL, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(_PATIENCE)
        # The threads of the parent's OpenMP do not exist here; with one thread none is waited for.
        torch.set_num_threads(1)
        with torch.inference_mode():
            for dtype in HALF:
                rows = torch.ones(64, 64, dtype=dtype)
                torch.nn.functional.linear(rows, rows)
                torch.bmm(rows[None], rows[None])
                heads = rows.reshape(1, 2, 32, 64)
                torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        os.write(answer, _ALIVE)
    finally:
        os._exit(0)
