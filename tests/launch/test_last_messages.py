"""What a launcher has sent just before its connection ends."""

import socket
import time

from holdfast.adapters.launch.channel import Channel
from holdfast.adapters.launch.messages import event_message
from holdfast.adapters.launch.server import LauncherServer
from holdfast.decisions.launch_events import Event, Joined, Lost, Member, Succeeded
from holdfast.decisions.launch_runs import RunName

KEY = b"0123456789abcdef"


def test_events_behind_a_heartbeat_of_a_launcher_that_has_ended_count() -> None:
    events: list[Event] = []
    listener = socket.create_server(("127.0.0.1", 0))
    server = LauncherServer(listener, KEY, 60.0, events.append, RunName())
    connection = socket.create_connection(listener.getsockname())
    client = Channel(connection, KEY, is_server=False)
    joined = Joined(member=Member(name="a", address="", port=1, slots=1))
    client.send(event_message(joined))
    deadline = time.monotonic() + 30
    while joined not in events and time.monotonic() < deadline:
        server.advance(server.readers())
        client.receive()

    succeeded = Succeeded(launcher="a", round=1)
    client.send({"heartbeat": 1.0})
    server.advance(server.readers())
    time.sleep(0.05)  # the answer stays unread, so that the connection is reset
    for message in ({"heartbeat": 2.0}, {"heartbeat": 3.0}, event_message(succeeded)):
        client.send(message)
    client.close()
    time.sleep(0.05)
    for _ in range(3):
        server.advance(server.readers())
    server.close()

    assert events == [joined, succeeded, Lost(launcher="a")]
