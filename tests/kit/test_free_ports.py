"""Free ports beside the ephemeral range of the kernel."""

import socket
from pathlib import Path

import pytest

from holdfast.kit.free_ports import free_port, is_free


@pytest.mark.parametrize(
    ("ephemeral", "lowest", "highest"),
    [
        ("32768\t60999\n", 20_000, 32_767),
        ("21000 60999", 20_000, 20_999),
        ("20999 60999", 20_000, 60_999),
        ("10000 65535", 20_000, 60_999),
        ("1024 65535", 20_000, 60_999),
    ],
)
def test_many_ports_can_be_chosen_for_every_ephemeral_range(
    tmp_path: Path, ephemeral: str, lowest: int, highest: int
) -> None:
    file = tmp_path / "ip_local_port_range"
    file.write_text(ephemeral, encoding="ascii")
    found = [free_port(file) for _ in range(100)]

    assert len(set(found)) > 50
    assert lowest <= min(found)
    assert max(found) <= highest


def test_a_port_that_is_used_at_any_address_is_not_free() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        assert not is_free(server.getsockname()[1])
