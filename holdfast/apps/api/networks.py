"""IP networks in the configuration of the API."""

import ipaddress
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ProxyNetwork:
    """IP addresses of reverse proxies."""

    text: str

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read ``"10.0.0.0/24"``, ``"10.0.0.7"`` or an IPv6 address or network."""
        try:
            network = ipaddress.ip_network(str(value))
        except ValueError as error:
            raise ValueError(
                f"{value!r} is neither an IP address nor a network such as 10.0.0.0/24: {error}"
            ) from None
        if network.prefixlen == 0:
            raise ValueError(f"{value!r} matches every address; list only the proxies' networks")
        return cls(str(network))

    def __str__(self) -> str:
        return self.text


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
