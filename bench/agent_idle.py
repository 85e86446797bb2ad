"""The agent with every detector on, on a machine with all devices where nothing happens.

node-problem-detector is idle beside it, with the same rules for the same log.
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench import peer
from bench.agent import resident_mib
from bench.figure import Figure
from bench.made_node import make_node

SECONDS = 60
"""Long enough for each sample to be taken again, those of five minutes left out."""

QUICK_SECONDS = 15
_SETTLING_S = 3


def run(*, quick: bool = False) -> list[Figure]:
    """Leave both alone and see what they use, the commands that they run counted in."""
    seconds = QUICK_SECONDS if quick else SECONDS
    binary = peer.build()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        log = folder / "messages"
        log.touch()
        root, commands = make_node(folder)
        config = folder / "agent.toml"
        config.write_text(
            f'root = "{root}"\ncommand_path = "{commands}:{os.environ["PATH"]}"\n', encoding="utf-8"
        )
        watched = [stack.enter_context(peer.agent(folder, log, "--config", str(config)))]
        if binary is not None:
            watched.append(stack.enter_context(peer.peer(folder, log, binary)))
        time.sleep(_SETTLING_S)
        before = [watcher.cpu_s() for watcher in watched]
        time.sleep(seconds)
        shares = [
            100 * (watcher.cpu_s() - then) / seconds
            for watcher, then in zip(watched, before, strict=True)
        ]
        resident = [resident_mib(watcher.pid) for watcher in watched]
    if binary is not None:
        print(
            f"node-problem-detector {peer.VERSION} idle: {shares[1]:.2f} % of a core, "
            f"{resident[1]:.1f} MiB",
            file=sys.stderr,
        )
    return [
        Figure(name="idle agent, part of a core", value=shares[0], unit="%", goal=0.3),
        Figure(
            name="idle agent, memory beside the peer's",
            value=resident[0], unit="MiB", goal=[*resident[1:], peer.MEMORY_MIB][0],
        ),
    ]  # fmt: skip
