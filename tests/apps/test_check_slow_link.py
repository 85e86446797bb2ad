"""Two nodes that are network namespaces, with a real link that is made slow, and cut."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.host_tools import require_tool

TOKEN = "HOLDFAST_CHECK_TOKEN"  # noqa: S105 - a name
ADDRESS = "10.77.0.{}"
UNBOUNDED = """
[thresholds.default]
pair_tcp_us = 0
pair_tcp_mb_per_s = 0
pair_fabric_us = 0
pair_fabric_mb_per_s = 0
"""


class Link:
    """Two network namespaces and the link between them."""

    def __init__(self, folder: Path) -> None:
        mark = secrets.token_hex(3)
        self.ends = [f"hf-{mark}-{end}" for end in (1, 2)]
        self.wires = [f"hf{mark}{end}" for end in (1, 2)]
        self.config = folder / "check.toml"
        self.environment = {**os.environ, TOKEN: secrets.token_hex(16)}

    def build(self) -> None:
        for end in self.ends:
            self._call("ip", "netns", "add", end)
        one, other = self._both
        self._call(
            "ip", "link", "add", one[1], "netns", one[0], "type", "veth",
            "peer", "name", other[1], "netns", other[0],
        )  # fmt: skip
        for number, (end, wire) in enumerate((one, other), 1):
            self._call("ip", "-n", end, "addr", "add", f"{ADDRESS.format(number)}/24", "dev", wire)
            self._call("ip", "-n", end, "link", "set", wire, "up")
            self._call("ip", "-n", end, "link", "set", "lo", "up")

    def remove(self) -> None:
        for end in self.ends:
            subprocess.run(["ip", "netns", "del", end], check=False, capture_output=True)

    def slow(self, mbit: int) -> bool:
        """Let so much through, later by 20 ms where the kernel can do that; whether it can."""
        are_late = [self._slow(end, wire, mbit) for end, wire in self._both]
        return all(are_late)

    def _slow(self, end: str, wire: str, mbit: int) -> bool:
        at = ["tc", "-n", end, "qdisc", "replace", "dev", wire, "root"]
        netem = [*at, "netem", "delay", "10ms", "rate", f"{mbit}mbit"]
        if subprocess.run(netem, check=False, capture_output=True).returncode == 0:
            return True
        self._call(*at, "tbf", "rate", f"{mbit}mbit", "burst", "512k", "latency", "100ms")
        return False

    def cut(self) -> None:
        self._call("ip", "-n", self.ends[0], "link", "set", self.wires[0], "down")

    def serve(self) -> subprocess.Popen[str]:
        server = subprocess.Popen(
            [*self._inside(1), "check", "serve", "--listen", ":20259", "--config", self.config],
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=self.environment,
        )
        assert server.stderr is not None
        assert "listening" in server.stderr.readline()
        return server

    def check(self, *options: str, more: str = "") -> tuple[int, dict[str, Any]]:
        """Exit code and parts."""
        self.config.write_text(f'fabric_provider = "tcp"\n{more}')
        done = subprocess.run(
            [*self._inside(0), "check", "pair", "--with", ADDRESS.format(2), *options,
             "--config", self.config, "--output", "json"],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=self.environment,
            timeout=120,
            check=False,
        )  # fmt: skip
        parts = {part["name"]: part for part in json.loads(done.stdout)["parts"]}
        return done.returncode, parts

    @property
    def _both(self) -> list[tuple[str, str]]:
        return list(zip(self.ends, self.wires, strict=True))

    def _inside(self, end: int) -> list[str]:
        return ["ip", "netns", "exec", self.ends[end], sys.executable, "-m", "holdfast"]

    def _call(self, *argv: str) -> None:
        subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def real_link(tmp_path) -> Iterator[Link]:
    for tool in ("ip", "tc", "fi_pingpong"):
        require_tool(tool)
    made = Link(tmp_path)
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
        yield made
    finally:
        made.remove()


def test_a_slow_link_is_found_by_what_crosses_it_and_a_cut_one_too(real_link) -> None:
    real_link.config.write_text('fabric_provider = "tcp"\n')
    server = real_link.serve()
    try:
        code, parts = real_link.check(more=UNBOUNDED)
        assert code == 0, parts
        assert [part["outcome"] for part in parts.values()] == ["passed", "passed"]

        real_link.slow(600)
        bounds = "pair_fabric_mb_per_s = 150\npair_fabric_us = 0\n"
        code, parts = real_link.check(
            "--only", "fi_pingpong", more=f"[thresholds.default]\n{bounds}"
        )
        assert (code, parts["fi_pingpong"]["outcome"]) == (1, "failed"), parts
        assert "expected at least 150" in parts["fi_pingpong"]["detail"]

        is_late = real_link.slow(40)
        code, parts = real_link.check("--only", "tcp")
        assert (code, parts["tcp"]["outcome"]) == (1, "failed"), parts
        assert "pair_tcp_mb_per_s is " in parts["tcp"]["detail"]
        assert ("pair_tcp_us is " in parts["tcp"]["detail"]) == is_late

        real_link.cut()
        code, parts = real_link.check()
        assert (code, list(parts)) == (1, ["connect"])
        assert "does not respond" in parts["connect"]["detail"]
        assert parts["connect"]["findings"][0]["reason"] == "PairTestFailed"
    finally:
        server.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.returncode == 143
        assert server.stderr is not None
        server.stderr.close()
