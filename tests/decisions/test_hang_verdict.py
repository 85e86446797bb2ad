"""The verdict on a hang: which rank the others wait for, and what it does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.hang_verdict import VerdictKind, verdict
from holdfast.decisions.rank_snapshots import (
    HELPERS_LIMIT,
    Activity,
    Frame,
    Helper,
    RankSnapshot,
    activity,
    groups,
    ordered,
    place,
)
from holdfast.decisions.storage_waits import storage_of

SITE = "/venv/lib/python3.11/site-packages"
OWN = Frame(function="train", file="/src/train.py", line=20)


def frame(function: str, file: str, line: int = 1) -> Frame:
    return Frame(function=function, file=file, line=line)


def in_collective(name: str = "all_reduce", line: int = 20) -> tuple[Frame, ...]:
    return (
        frame(name, f"{SITE}/torch/distributed/distributed_c10d.py"),
        frame("wrapper", f"{SITE}/torch/distributed/c10d_logger.py"),
        replace(OWN, line=line),
    )


BACKWARD = (frame("_engine_run_backward", f"{SITE}/torch/autograd/graph.py"), OWN)
DATA = (
    frame("select", "/usr/lib/python3.11/selectors.py"),
    frame("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1263),
    OWN,
)
WORKER = (
    frame("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py"),
    frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py"),
    *DATA,
)
"""Where each worker of a DataLoader is: a forked one has the frames of its rank."""

READS = (
    frame("__getitem__", "/src/data.py", 3),
    frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py"),
    *WORKER,
)
IDLE = (
    frame("poll", "/usr/lib/python3.11/multiprocessing/connection.py"),
    frame("get", "/usr/lib/python3.11/multiprocessing/queues.py"),
    *WORKER,
)
WAITS_FOR_QUEUE = (
    frame("wait", "/usr/lib/python3.11/threading.py"),
    frame("get", "/usr/lib/python3.11/queue.py", 171),
    OWN,
)
DDP = frame("forward", f"{SITE}/torch/nn/parallel/distributed.py")
MODULE = frame("_call_impl", f"{SITE}/torch/nn/modules/module.py")
IN_MODEL = (frame("forward", f"{SITE}/transformers/modeling_llama.py", 9), MODULE, DDP, OWN)
ASLEEP = (frame("sleepy", "/src/train.py", 9), OWN)


def look(rank: int, frames: tuple[Frame, ...] = (), **changes) -> RankSnapshot:
    values = {"rank": rank, "node": f"node-{rank}", "pid": 100 + rank, "state": "S", **changes}
    return RankSnapshot(frames=frames, **values)


def worker(frames: tuple[Frame, ...], number: int = 77, **changes) -> Helper:
    return Helper(id=number, is_process=True, **{"state": "S", **changes}, frames=frames)


def all_in(frames: tuple[Frame, ...], count: int = 4) -> list[RankSnapshot]:
    return [look(rank, frames) for rank in range(count)]


def but(rank: int, frames: tuple[Frame, ...] = (), **changes) -> list[RankSnapshot]:
    """Four ranks in the same collective, except one."""
    looks = all_in(in_collective())
    looks[rank] = look(rank, frames or in_collective(), **changes)
    return looks


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (in_collective(), Activity.COLLECTIVE),
        (BACKWARD, Activity.BACKWARD),
        ((DDP, OWN), Activity.BACKWARD),
        ((MODULE, DDP, OWN), Activity.BACKWARD),
        (IN_MODEL, Activity.OTHER),
        (DATA, Activity.DATA),
        (ASLEEP, Activity.OTHER),
        ((frame("get", "/usr/lib/python3.11/queue.py"), OWN), Activity.OTHER),
        ((), Activity.UNKNOWN),
    ],
)
def test_the_stack_shows_what_a_rank_does(frames, expected) -> None:
    assert activity(look(0, frames)) is expected


@pytest.mark.parametrize(
    ("looks", "kind", "ranks", "text"),
    [
        (but(2, ASLEEP), VerdictKind.ABSENT, (2,), "never entered all_reduce: it is in sleepy"),
        (but(2, IN_MODEL), VerdictKind.ABSENT, (2,), "it is in forward (modeling_llama.py:9)"),
        (but(1, DATA), VerdictKind.ABSENT, (1,), "it is in the DataLoader, in _try_get_data"),
        (
            [*all_in(BACKWARD, 3), look(3, ASLEEP)],
            VerdictKind.ABSENT,
            (3,),
            "never entered the collectives of the backward pass: it is in sleepy",
        ),
        (but(3, state="T"), VerdictKind.STOPPED, (3,), "SIGSTOP"),
        (but(3, state="t"), VerdictKind.STOPPED, (3,), "debugger"),
        (but(0, pid=None), VerdictKind.DEAD_PEER, (0,), "has no process"),
        (
            but(1, state="D", wait_channel="nv_wait_for_gsp"),
            VerdictKind.UNINTERRUPTIBLE,
            (1,),
            "in nv_wait_for_gsp",
        ),
        (
            but(1, ASLEEP, state="D", wait_channel="rpc_wait_bit_killable"),
            VerdictKind.STORAGE,
            (1,),
            "rank 1 on node-1 waits for NFS in rpc_wait_bit_killable: it is in sleepy "
            "(train.py:9); the other 3 ranks wait",
        ),
        (
            but(1, ASLEEP, wait_channel="request_wait_answer"),
            VerdictKind.STORAGE,
            (1,),
            "rank 1 on node-1 waits for FUSE in request_wait_answer: it is in sleepy",
        ),
        (
            [look(0, ASLEEP, wait_channel="ptlrpc_set_wait"), look(1, ASLEEP), look(2, ASLEEP)],
            VerdictKind.UNKNOWN,
            (),
            "outside of collectives",
        ),
        (
            but(2, DATA, helpers=(worker(READS, state="D", wait_channel="folio_wait_bit_common"),)),
            VerdictKind.STORAGE,
            (2,),
            "rank 2 on node-2 waits for the page cache in folio_wait_bit_common: it is in the "
            "DataLoader, in _try_get_data (dataloader.py:1263), called by train (train.py:20); its "
            "worker process 77 is in __getitem__ (data.py:3), and waits for the page cache in "
            "folio_wait_bit_common; the other 3 ranks wait",
        ),
        (
            [look(rank, state="D") for rank in range(3)],
            VerdictKind.STORAGE,
            (),
            "all 3 ranks are in uninterruptible sleep: storage does not respond",
        ),
        (
            [look(rank, DATA, state="D", wait_channel="fuse_wait") for rank in range(4)],
            VerdictKind.STORAGE,
            (),
            "storage does not respond",
        ),
        (
            [
                *all_in(in_collective(), 3),
                look(
                    3,
                    state="D",
                    wait_channel="percpu_rwsem_wait",
                    note="no stack: py-spy did not respond",
                ),
            ],
            VerdictKind.STORAGE,
            (3,),
            "rank 3 on node-3 waits for a frozen file system in percpu_rwsem_wait; the other 3 "
            "ranks wait",
        ),
        (
            [look(rank, state="D", wait_channel="fuse_wait") for rank in range(2)],
            VerdictKind.STORAGE,
            (),
            "all 2 ranks wait for FUSE in fuse_wait: storage does not respond",
        ),
        (
            but(2, in_collective("barrier", 22)),
            VerdictKind.DESYNCHRONIZED,
            (2,),
            "rank 2 is in barrier, called by train (train.py:22), but ranks 0, 1, 3 are in "
            "all_reduce, called by train (train.py:20): the ranks run different code",
        ),
        (but(2, in_collective(line=30)), VerdictKind.DESYNCHRONIZED, (2,), "train.py:30"),
        (
            [look(0, in_collective()), look(1, in_collective("barrier", 22))],
            VerdictKind.DESYNCHRONIZED,
            (),
            "rank 0 is in all_reduce, called by train (train.py:20), and rank 1 is in barrier, "
            "called by train (train.py:22): the ranks run different code",
        ),
        (
            [*all_in(in_collective(), 2), look(2, in_collective("barrier")), look(3, BACKWARD)],
            VerdictKind.DESYNCHRONIZED,
            (2, 3),
            "rank 2 is in barrier, called by train (train.py:20), rank 3 is in the collectives of "
            "the backward pass, called by train (train.py:20), but ranks 0, 1 are in all_reduce",
        ),
        (all_in(DATA), VerdictKind.DATA, (), "are waiting for data"),
        (all_in(in_collective()), VerdictKind.SAME, (), "check the network"),
        (all_in(BACKWARD), VerdictKind.SAME, (), "the collectives of the backward pass"),
        (all_in(ASLEEP), VerdictKind.UNKNOWN, (), "are outside of collectives"),
        ([look(0, note="no stack: py-spy is missing")], VerdictKind.UNKNOWN, (), "py-spy"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(looks, kind, ranks, text) -> None:
    found = verdict(looks)

    assert (found.kind, found.ranks) == (kind, ranks)
    assert text in found.text


def test_the_node_of_the_named_rank_and_who_waits_are_in_the_text() -> None:
    found = verdict(but(2, ASLEEP))

    assert found.text == (
        "rank 2 on node-2 never entered all_reduce: it is in sleepy (train.py:9); "
        "the other 3 ranks wait"
    )


def test_a_dead_rank_explains_more_than_a_stopped_or_absent_one() -> None:
    looks = but(0, pid=None)
    looks[1] = replace(looks[1], state="T")
    looks[2] = look(2, ASLEEP)

    assert verdict(looks).ranks == (0,)
    assert verdict(looks[1:]).ranks == (1,)
    assert verdict(looks[2:]).ranks == (2,)


def test_a_stack_that_cannot_be_read_accuses_nobody() -> None:
    looks = [*all_in(in_collective(), 3), look(3, note="no stack: not permitted")]

    assert verdict(looks).kind is VerdictKind.SAME
    assert "all 3 ranks that could be read" in verdict(looks).text


def test_ranks_are_grouped_by_their_functions_not_by_their_lines() -> None:
    looks = [*all_in(in_collective(), 3), look(3, ASLEEP)]
    looks[1] = look(1, in_collective(line=21))

    assert list(groups(looks).values()) == [(0, 1, 2), (3,)]


def test_the_place_names_the_line_of_the_program() -> None:
    assert place(look(0, DATA)).endswith("called by train (train.py:20)")
    assert place(look(0)) == "an unknown place"


def test_the_worker_for_which_the_dataloader_waits_is_named() -> None:
    decoding = (frame("decode", f"{SITE}/PIL/Image.py", 8), *READS)
    helpers = ordered([worker(IDLE, 70), worker(WORKER, 71), worker(decoding, 72)])

    found = verdict(but(1, DATA, helpers=helpers))

    assert (found.kind, found.ranks) == (VerdictKind.ABSENT, (1,))
    assert found.text.endswith(
        "called by train (train.py:20); its worker process 72 is in decode (Image.py:8), called by "
        "__getitem__ (data.py:3); the other 3 ranks wait"
    )
    assert "its worker" not in verdict(but(1, DATA, helpers=helpers[1:])).text


def test_a_stopped_worker_is_named_before_those_that_run() -> None:
    helpers = ordered([worker(READS, 70), worker(IDLE, 71, state="T")])

    text = verdict([look(0, DATA, helpers=helpers), *all_in(DATA)[1:]]).text
    assert "its worker process 71 is in poll (connection.py:1), and is stopped by" in text


def test_the_thread_for_which_a_queue_is_read_is_named() -> None:
    loads = Helper(id=5, name="loader", frames=(frame("read_batch", "/src/data.py", 7),))
    pin = Helper(id=6, name="pin", frames=(frame("get", "/usr/lib/python3.11/queue.py"),))

    waits = verdict(but(1, WAITS_FOR_QUEUE, helpers=ordered([pin, loads])))
    computes = verdict(but(1, ASLEEP, helpers=ordered([pin, loads])))

    assert "; its thread loader is in read_batch (data.py:7); the other" in waits.text
    assert "its thread" not in computes.text


def test_few_helpers_with_few_frames_are_kept() -> None:
    many = ordered([worker(IDLE * 50, number) for number in range(50)] + [worker(READS, 99)])

    assert len(many) == HELPERS_LIMIT
    assert many[0].id == 99
    assert max(len(one.frames) for one in many) == 20


@pytest.mark.parametrize(
    ("channel", "storage"),
    [
        ("rpc_wait_bit_killable", "NFS"),
        ("nfs_wait_bit_killable", "NFS"),
        ("nfs4_run_open_task", "NFS"),
        ("ptlrpc_set_wait", "Lustre"),
        ("ldlm_completion_ast", "Lustre"),
        ("request_wait_answer", "FUSE"),
        ("ceph_mdsc_wait_request", "CephFS"),
        ("wait_for_response.isra.0", "SMB"),
        ("cxiWaitEventWait", "GPFS"),
        ("percpu_rwsem_wait", "a frozen file system"),
        ("folio_wait_bit_common", "the page cache"),
        ("wait_on_page_bit_common", "the page cache"),
        ("jbd2_log_wait_commit", "a local file system"),
        ("futex_do_wait", ""),
        ("poll_schedule_timeout.constprop.0", ""),
        ("hrtimer_nanosleep", ""),
        ("unix_stream_read_generic", ""),
        ("do_wait", ""),
        ("pipe_read", ""),
        ("ep_poll", ""),
        ("wait_woken", ""),
        ("", ""),
    ],
)
def test_the_wait_channel_shows_which_storage_a_process_waits_for(channel, storage) -> None:
    assert storage_of(channel) == storage


IN_WAIT = (replace(OWN, line=44), replace(OWN, line=60))
"""``wait`` of an asynchronous collective has no frame of its own."""


@pytest.mark.parametrize("frames", [ASLEEP, DATA])
def test_the_rank_that_is_elsewhere_while_all_others_wait_in_one_line_is_named(frames) -> None:
    looks = [*all_in(IN_WAIT, 3), look(3, frames)]
    found = verdict(looks)

    assert (found.kind, found.ranks) == (VerdictKind.ABSENT, (3,))
    assert "while the others sleep in train (train.py:44)" in found.text


@pytest.mark.parametrize(
    "looks",
    [
        all_in(IN_WAIT),
        [*all_in(IN_WAIT, 2), look(2, ASLEEP), look(3, ASLEEP)],  # half of them
        [look(0, IN_WAIT), look(1, ASLEEP)],
        [*all_in(IN_WAIT, 3), look(3, ASLEEP), look(4)],  # one was not read
        [*(look(rank, IN_WAIT, state="R") for rank in range(3)), look(3, ASLEEP)],  # they compute
    ],
)
def test_ranks_outside_of_collectives_are_not_named_without_a_majority_that_sleeps(looks) -> None:
    assert verdict(looks).ranks == ()


@pytest.mark.parametrize("call", ["send", "recv", "batch_isend_irecv"])
def test_stages_that_wait_for_single_others_are_not_blamed_for_different_calls(call) -> None:
    found = verdict([*all_in(in_collective(), 3), look(3, in_collective(call, 9))])

    assert (found.kind, found.ranks) == (VerdictKind.SAME, ())
    assert f"rank 3 is in {call}, called by train (train.py:9)" in found.text
    assert "check that each send has its receive" in found.text


FRAMES = st.sampled_from(
    [
        IN_WAIT,
        in_collective("recv", 7),
        in_collective(),
        in_collective("barrier", 3),
        BACKWARD,
        DATA,
        ASLEEP,
        (),
    ]
)
LOOKS = st.lists(
    st.tuples(FRAMES, st.sampled_from("RSDTt"), st.booleans()), min_size=1, max_size=12
)


@given(LOOKS, st.randoms(use_true_random=False))
def test_a_verdict_names_ranks_that_exist_whatever_their_order(given_looks, random) -> None:
    looks = [
        look(rank, frames, state=state, pid=100 if is_there else None)
        for rank, (frames, state, is_there) in enumerate(given_looks)
    ]
    found = verdict(looks)
    shuffled = list(looks)
    random.shuffle(shuffled)

    assert set(found.ranks) <= {one.rank for one in looks}
    assert found.text
    assert verdict(shuffled).kind is found.kind
    assert verdict(shuffled).ranks == found.ranks
