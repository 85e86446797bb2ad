from lightkube import Client
from lightkube.resources.core_v1 import Namespace

from holdfast.testing.control_plane import ControlPlane


def test_what_was_answered_outlives_a_restart(control_plane: ControlPlane, client: Client) -> None:
    before = client.get(Namespace, "kube-system").metadata.uid

    control_plane.restart_api_server()

    assert client.get(Namespace, "kube-system").metadata.uid == before
