"""Warm ranks of one node: processes that wait until the next round starts."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.options import WarmScript
from holdfast.apps.launch.rank_output import RankStreams
from holdfast.apps.launch.ranks import become_rank
from holdfast.kit.processes import descendants, end_children

_MODULE: Final = "holdfast.apps.launch.warm_rank"
_SEND_S: Final = 1.0
"""Time for a warm rank to accept its order: it fits into the buffer of the socket."""


@dataclass(frozen=True, slots=True)
class _WarmRank:
    process: subprocess.Popen[bytes]
    link: socket.socket


class WarmRanks:
    """At most one warm rank for each local rank."""

    def __init__(self, script: WarmScript) -> None:
        self._script = script
        self._waiting: dict[int, _WarmRank] = {}

    def prepare(self, local_rank: int, environment: Mapping[str, str]) -> None:
        """Start a warm rank if there is none; without one, its rank starts cold.

        Args:
            local_rank: rank within the node.
            environment: as of the rank, so that libraries that read it during their import find
                the same values, except those that differ by round.

        """
        if local_rank in self._waiting:
            return
        try:
            self._waiting[local_rank] = self._started(environment)
        except OSError as error:  # as at the limit of processes or of open files
            sys.stderr.write(f"holdfast: warm rank not started: {error.strerror}\n")

    def _started(self, environment: Mapping[str, str]) -> _WarmRank:
        own_end, child_end = socket.socketpair()
        with child_end:
            preload = ",".join(self._script.preload)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-u", "-m", _MODULE, str(child_end.fileno()), preload],
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    pass_fds=[child_end.fileno()],
                    start_new_session=True,
                    preexec_fn=partial(become_rank, os.getpid()),
                )
            except OSError:
                own_end.close()
                raise
        return _WarmRank(process, own_end)

    def take(
        self,
        local_rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: RankStreams,
        cgroup: Cgroup | None,
    ) -> subprocess.Popen[bytes] | None:
        """Make the warm rank run the script; None if there is none that can."""
        warm = self._waiting.pop(local_rank, None)
        if warm is None:
            return None
        if cgroup is not None:
            cgroup.add(warm.process.pid)
        given = [(1, streams.stdout), (2, streams.stderr)]
        used = [(number, file.fileno()) for number, file in given if file is not None]
        order = {
            "script": self._script.script,
            "arguments": self._script.arguments,
            "is_module": self._script.is_module,
            "command": command,
            "environment": dict(environment),
            "streams": [number for number, _ in used],
        }
        with warm.link as link:
            link.settimeout(_SEND_S)
            try:
                data = json.dumps(order).encode()
                sent = socket.send_fds(link, [data], [descriptor for _, descriptor in used])
                link.sendall(data[sent:])
                link.shutdown(socket.SHUT_WR)
            except OSError:
                end_children([warm.process])
                return None
        return warm.process

    def pids(self) -> set[int]:
        """Return the warm ranks and the processes below them."""
        own = [warm.process.pid for warm in self._waiting.values()]
        return {pid for root in own for pid in (root, *descendants(root))}

    def close(self) -> None:
        """End all warm ranks."""
        for warm in self._waiting.values():
            warm.link.close()
        end_children([warm.process for warm in self._waiting.values()])
        self._waiting.clear()
