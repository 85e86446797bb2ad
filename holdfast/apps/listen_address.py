"""Addresses in configuration files and options."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen for TCP connections."""

    host: str
    port: int

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read ``"127.0.0.1:20257"``, ``"[::1]:20257"``, ``":20257"`` (all addresses) or ``20257``.

        A port alone is one of the loopback address 127.0.0.1.
        """
        host, colon, port = str(value).rpartition(":")
        is_port = not isinstance(value, bool) and port.isascii() and port.isdecimal()
        is_host = ":" not in host or (host[0], host[-1]) == ("[", "]")
        if not is_host or not is_port or int(port) > 0xFFFF:
            raise ValueError(
                f"{value!r} is neither an address such as 127.0.0.1:20257 nor a port from 0 to "
                "65535"
            )
        return cls(host.strip("[]") if colon else "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
