"""Builds what DeepSpeed would compile at its first start without a GPU: once, not in each test."""

import os
import sys
from pathlib import Path

EXTENSIONS = Path(sys.prefix) / "torch_extensions"
"""Where the tests of frameworks have PyTorch look for compiled extensions."""


def main() -> int:
    """Build them, unless they are there: a minute of one core."""
    os.environ |= {
        "TORCH_EXTENSIONS_DIR": str(EXTENSIONS),
        "DS_ACCELERATOR": "cpu",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # ninja is there
    }
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder  # noqa: PLC0415

    ShareMemCommBuilder().load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
