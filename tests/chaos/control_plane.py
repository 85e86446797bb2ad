"""Disturbances of a Kubernetes control plane, and of the way to it."""

from contextlib import AbstractContextManager

from unreliable_proxy import UnreliableProxy

from tests.chaos.schedules import Disturbance, Kind, Victim
from tests.engines.control_plane import API_SERVER, ETCD, ControlPlane
from tests.engines.outages import full_etcd, killed_api_server, killed_etcd, slow_etcd, stopped

CONTROL_PLANE = (Victim.API_SERVER, Victim.ETCD)


def disturbed(
    plane: ControlPlane, proxy: UnreliableProxy, one: Disturbance
) -> AbstractContextManager[None]:
    """A disturbance of one of ``CONTROL_PLANE``, from enter to exit."""
    match one.victim, one.kind:
        case Victim.API_SERVER, Kind.KILL:
            return killed_api_server(plane)
        case Victim.API_SERVER, Kind.UNRELIABLE:
            return proxy.disturbing(one.number)
        case Victim.API_SERVER, _:
            return stopped(plane, API_SERVER)
        case Victim.ETCD, Kind.KILL:
            return killed_etcd(plane)
        case Victim.ETCD, Kind.FULL_DISK:
            return full_etcd(plane)
        case Victim.ETCD, Kind.SLOW:
            return slow_etcd(plane)
        case Victim.ETCD, _:
            return stopped(plane, ETCD)
        case _:
            raise ValueError(one.victim)
