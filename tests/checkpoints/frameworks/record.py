"""Writes checkpoints with a real framework and packs them as a recording.

    python tests/checkpoints/frameworks/record.py dcp lightning megatron=megatron_0_19 ...

Run it with a Python that has torch and the framework; nothing of Holdfast is imported. Each script
beside this one writes the checkpoints of its framework, on two ranks where that makes a difference,
into the directory that is its argument. The versions that wrote them are kept with them.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RECORDINGS = HERE.parents[1] / "recordings" / "checkpoints"

SCRIPTS = {
    "dcp": (2, ("torch",)),
    "torch_save": (1, ("torch",)),
    "megatron": (2, ("megatron-core", "torch")),
    "megatron_lm": (2, ("megatron-core", "torch")),
    "hf_trainer": (2, ("transformers", "accelerate", "safetensors", "torch")),
    "accelerate": (2, ("accelerate", "safetensors", "torch")),
    "lightning": (2, ("lightning", "torch")),
    "deepspeed": (2, ("deepspeed", "torch")),
    "deepspeed_universal": (2, ("deepspeed", "torch")),
    "composer": (1, ("mosaicml", "torch")),
    "composer_sharded": (2, ("mosaicml", "torch")),
    "orbax": (1, ("orbax-checkpoint", "jax", "tensorstore")),
    "ray_train": (1, ("ray",)),
    "torchtitan": (2, ("torchtitan", "torch")),
    "dlrover": (1, ("dlrover", "torch")),
    "dlrover_agents": (1, ("dlrover", "megatron-core", "torch")),
    "nvrx_local": (4, ("nvidia-resiliency-ext", "torch")),
}
"""Script to the number of its ranks, and the packages whose versions matter."""


def main(names: list[str]) -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for given in names or SCRIPTS:
        name, _, target = given.partition("=")
        ranks, packages = SCRIPTS[name]
        with tempfile.TemporaryDirectory() as folder:
            run(name, ranks, Path(folder))
            versions = {package: importlib.metadata.version(package) for package in packages}
            versions["python"] = sys.version.split()[0]
            text = json.dumps(versions, indent=2)
            Path(folder, "written_by.json").write_text(f"{text}\n", encoding="utf-8")
            pack(Path(folder), RECORDINGS / f"{target or name}.tar.xz")


def run(name: str, ranks: int, folder: Path) -> None:
    script = [str(HERE / f"write_{name}.py"), str(folder)]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(launcher if ranks > 1 else []), *script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, env=environment)


def pack(folder: Path, target: Path) -> None:
    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, filter=anonymous)
    sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
