"""torch.save: zip archives, the form before 1.6, and without checksums."""

import sys
from pathlib import Path

import torch


def main() -> None:
    folder = Path(sys.argv[1])
    for kind in ("zip", "legacy", "no_sums"):
        (folder / kind).mkdir()
        for step in (100, 200, 300):
            torch.manual_seed(step)
            model = torch.nn.Linear(16, 8)
            saved = {"model": model.state_dict(), "step": step, "half": torch.randn(3).half()}
            torch.serialization.set_crc32_options(kind != "no_sums")
            path = folder / kind / f"checkpoint_{step:06d}.pt"
            torch.save(saved, path, _use_new_zipfile_serialization=kind != "legacy")
        (folder / kind / "latest.pt").symlink_to("checkpoint_000300.pt")


if __name__ == "__main__":
    main()
