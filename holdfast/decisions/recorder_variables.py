"""Variables that turn on PyTorch's flight recorder: pure, and loaded by the launcher."""

from collections.abc import Mapping


def recorder_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which ranks record their collectives, unless the user has set them.

    The recorder is off by default up to torch 2.10; 2000 is the default since. The names that start
    with ``TORCH_NCCL`` are those of earlier releases.
    """
    sizes = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    own = {} if any(name in given for name in sizes) else dict.fromkeys(sizes, "2000")
    on_timeout = "TORCH_NCCL_DUMP_ON_TIMEOUT"
    return own if on_timeout in given else {**own, on_timeout: "1"}
