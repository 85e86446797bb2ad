"""Webhook addresses in configurations."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def address_problem(url: str) -> str:
    """Return why an address cannot be used for webhooks; empty if it can.

    An address is ``https://HOST[:PORT][/PATH]``, or the same with ``http`` on the loopback. A user
    name or a password in it would be ignored, as requests are signed. The message does not repeat
    the path and the query, which may be secret.
    """
    scheme = host = ""
    is_complete = False
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
        is_complete = bool(host) and parts.port != 0
    except ValueError:
        pass
    if is_complete and parts.username is not None:
        return "takes no user name or password; requests are signed"
    if is_complete and (scheme == "https" or (scheme == "http" and _is_loopback(host))):
        return ""
    return (
        "expected an https address such as https://machines.example.org/orders (http only on this"
        f" machine), got scheme {scheme or 'none'} and host {host or 'none'}"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
