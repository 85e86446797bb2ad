"""A process that has imported what a script imports, and waits to become its rank.

``python -m holdfast.apps.launch.warm_rank SOCKET MODULE,...``. It is never forked, so threads that
imports have started do no harm. If it cannot become the rank as a new process would, for example
because CUDA is initialized, it executes the rank's command instead.
"""

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import types
from pathlib import Path
from typing import Any, Final

from holdfast.kit.plugins import call_foreign
from holdfast.kit.stack_requests import answer_requests

_CHUNK: Final = 65536
_STREAMS: Final = 2
_LATER: Final = {"torch": "torch._dynamo"}
"""Modules that others import lazily: torch for the first optimizer or DDP module, in 1.4 s."""


def main(argv: list[str]) -> None:
    """Import modules, wait for the order on a socket, and run the script."""
    link = socket.socket(fileno=int(argv[0]))
    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # imports leave next to nothing to collect: a fifth of their time
    problem = _preload([name for name in argv[1].split(",") if name]) or _unsafe()
    if gc.get_threshold()[0] == 0:  # else a module has set its own
        gc.set_threshold(*thresholds)
    if problem:
        sys.stderr.write(f"holdfast: warm rank not used: {problem}; starting a new process\n")
        sys.stderr.flush()
    order = _receive(link)
    if order is None:  # the launcher does not need it
        raise SystemExit(0)
    os.environ.clear()
    os.environ.update(order["environment"])
    if problem:
        os.execve(order["command"][0], order["command"], order["environment"])  # noqa: S606
    answer_requests()
    _become(order["script"], order["arguments"], is_module=order["is_module"])


def _preload(names: list[str]) -> str:
    """Import modules; return why that failed, or nothing."""
    for name in names:
        _, error = call_foreign(importlib.import_module, name)
        if error is not None:
            kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
            return f"--preload {name}: {kind}{error}"
        if name in _LATER:
            call_foreign(importlib.import_module, _LATER[name])  # older releases do not have it
    return ""


def _unsafe() -> str:
    """Return why this process is not like a new one; empty if it is."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialized after the import of --preload"
    if torch is not None and torch.distributed.is_available():
        return "a process group is initialized" if torch.distributed.is_initialized() else ""
    return ""


def _receive(link: socket.socket) -> dict[str, Any] | None:
    """Return the order, with standard output and error in place; None if there is none."""
    data, descriptors, *_ = socket.recv_fds(link, _CHUNK, _STREAMS)
    while part := link.recv(_CHUNK):
        data += part
    if not data:
        return None
    order: dict[str, Any] = json.loads(data)
    for target, descriptor in zip(order["streams"], descriptors, strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    link.close()
    return order


def _become(script: str, arguments: list[str], *, is_module: bool) -> None:
    """Run a script or a module as ``__main__``, as a new interpreter does."""
    sys.argv = [script, *arguments]
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(script).resolve().parent)
    main_module = types.ModuleType("__main__")
    main_module.__file__ = script
    main_module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    code = compile(Path(script).read_bytes(), script, "exec")
    exec(code, main_module.__dict__)  # noqa: S102 - the script of the user


if __name__ == "__main__":
    main(sys.argv[1:])
