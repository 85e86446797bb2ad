import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.apps.demo.allreduce import join
from holdfast.apps.demo.options import RankEnvironment
from holdfast.apps.demo.replica import PeerLost
from holdfast.model.errors import ConfigError
from tests.engines.ports import free_port

LONG = timedelta(seconds=30)
SHORT = timedelta(seconds=0.2)


def environment(rank, world_size, port, address="127.0.0.1"):
    return RankEnvironment(
        rank=rank,
        world_size=world_size,
        master_addr=address,
        master_port=port,
        attempt=1,
        progress_file=None,
    )


def join_rank(rank, world_size, port, *, run="run", join_timeout=LONG, peer_timeout=LONG, **more):
    place = environment(rank, world_size, port, **more)
    return join(place, run, join_timeout=join_timeout, peer_timeout=peer_timeout)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def ranks(pool):
    """Joins ranks and closes them at the end."""
    with ExitStack() as stack:

        def start(world_size, **options):
            port = free_port()
            # Ranks may come in any order.
            joining = [
                pool.submit(join_rank, rank, world_size, port, **options)
                for rank in reversed(range(world_size))
            ]
            return [stack.enter_context(group.result()) for group in reversed(joining)]

        yield start


def run_all(pool, call, groups):
    return [future.result() for future in [pool.submit(call, *group) for group in groups]]


finite = st.floats(width=32, min_value=-(2.0**90), max_value=2.0**90)


@settings(max_examples=15)
@given(st.lists(st.lists(finite, min_size=5, max_size=5), min_size=4, max_size=4))
def test_sums_are_added_in_the_order_of_the_ranks_on_every_rank(vectors):
    vectors = [np.array(vector, dtype=np.float32) for vector in vectors]
    expected = ((vectors[0] + vectors[1]) + vectors[2]) + vectors[3]
    port = free_port()
    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        joining = [pool.submit(join_rank, rank, 4, port) for rank in range(4)]
        groups = [stack.enter_context(group.result()) for group in joining]

        for _ in range(3):
            copies = [vector.copy() for vector in vectors]
            run_all(pool, lambda group, own: group.sum(own), list(zip(groups, copies, strict=True)))

            assert [copy.tobytes() for copy in copies] == [expected.tobytes()] * 4


def test_vectors_larger_than_any_socket_buffer_are_summed(pool, ranks):
    groups = ranks(3)
    vectors = [np.full(2_000_000, 2.0**rank, dtype=np.float32) for rank in range(3)]

    run_all(pool, lambda group, own: group.sum(own), list(zip(groups, vectors, strict=True)))

    assert all((vector == 7).all() for vector in vectors)


def test_broadcast_gives_the_payload_of_rank_0_to_all(pool, ranks):
    groups = ranks(3)

    for payload in (b"", b"x", bytes(3_000_000)):
        received = run_all(
            pool,
            lambda group, own: group.broadcast(own),
            list(zip(groups, [payload, b"ignored", b""], strict=True)),
        )
        assert received == [payload] * 3


def test_one_rank_alone_needs_no_network():
    with join_rank(0, 1, 1) as group:
        vector = np.arange(3, dtype=np.float32)
        group.sum(vector)

        assert vector.tolist() == [0, 1, 2]
        assert group.broadcast(b"own") == b"own"


def test_a_lost_rank_is_noticed_by_all_others(pool, ranks):
    groups = ranks(3)
    groups[1].__exit__(None, None, None)
    vector = np.zeros(1000, dtype=np.float32)

    lost = [pool.submit(groups[rank].sum, vector.copy()) for rank in (0, 2)]

    with pytest.raises(PeerLost, match=r"lost rank 1: .*; restart all ranks"):
        lost[0].result()
    groups[0].__exit__(None, None, None)
    with pytest.raises(PeerLost, match="lost rank 0"):
        lost[1].result()


@pytest.mark.parametrize(("silent", "caller"), [(1, 0), (0, 1)])
def test_a_silent_rank_counts_as_lost_after_the_timeout(ranks, silent, caller):
    groups = ranks(2, peer_timeout=SHORT)

    with pytest.raises(PeerLost, match=f"lost rank {silent}: no message for 200ms"):
        groups[caller].sum(np.zeros(10, dtype=np.float32))


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100])
def test_strangers_on_the_port_do_not_disturb(pool, words):
    port = free_port()
    root = pool.submit(join_rank, 0, 2, port)
    stranger = None
    while stranger is None:
        try:
            stranger = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            continue
    stranger.sendall(words)
    if not words:
        stranger.close()

    with stranger, join_rank(1, 2, port) as peer, root.result() as group:
        sent = pool.submit(group.broadcast, b"hello")
        assert peer.broadcast(b"") == b"hello"
        sent.result()


def test_missing_ranks_are_named(pool):
    port = free_port()
    root = pool.submit(join_rank, 0, 4, port, join_timeout=SHORT * 5)
    peer = pool.submit(join_rank, 2, 4, port)

    with pytest.raises(PeerLost, match=r"did not join in time: ranks \[1, 3\] of 4"):
        root.result()
    with pytest.raises(PeerLost, match="lost rank 0"):
        peer.result()


def test_a_missing_rank_0_is_named():
    port = free_port()

    with pytest.raises(PeerLost, match=f"rank 0 not reached in time at 127.0.0.1 port {port}"):
        join_rank(1, 2, port, join_timeout=SHORT)


def test_ranks_with_other_options_or_another_world_size_are_refused(pool):
    for world_size, run in ((2, "seed=2"), (3, "seed=1")):
        port = free_port()
        root = pool.submit(join_rank, 0, 2, port, run="seed=1")
        peer = pool.submit(join_rank, 1, world_size, port, run=run)

        with pytest.raises(ConfigError, match="rank 1 runs another job than rank 0"):
            root.result()
        with pytest.raises(PeerLost, match="lost rank 0"):
            peer.result()


def test_two_processes_of_the_same_rank_are_refused(pool):
    port = free_port()
    root = pool.submit(join_rank, 0, 3, port)
    peers = [pool.submit(join_rank, 1, 3, port) for _ in range(2)]

    with pytest.raises(ConfigError, match="two processes joined as rank 1"):
        root.result()
    for peer in peers:
        with pytest.raises(PeerLost):
            peer.result()


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(ConfigError, match=f"MASTER_PORT={port}: Address already in use"):
            join_rank(0, 2, port)


@pytest.mark.parametrize("address", ["203.0.113.1", "no.such.host.invalid", "::ffff:203.0.113.1"])
def test_an_address_that_is_not_ours_is_named(address):
    with pytest.raises(ConfigError, match=f"cannot listen at MASTER_ADDR={address} MASTER_PORT"):
        join_rank(0, 2, free_port(), address=address)
