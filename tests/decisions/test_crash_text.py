"""What is shown of a crash: the exception of the rank that failed first, and no more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.crash_text import (
    SHOWN_CHARS,
    crash_text,
    error_file_text,
)
from holdfast.decisions.failure_signatures import is_peer_failure
from holdfast.kit.units import one_line

TRACEBACK = """\
Traceback (most recent call last):
  File "/src/train.py", line 9, in <module>
    raise ValueError("bad config: lr=-1")
ValueError: bad config: lr=-1
"""

CHAINED = """\
Traceback (most recent call last):
  File "/src/train.py", line 3, in load
    return table[name]
           ~~~~~^^^^^^
KeyError: 'step'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/src/train.py", line 7, in <module>
    raise FileNotFoundError("no checkpoint")
FileNotFoundError: no checkpoint
"""

# PyTorch 2.15.0, torchrun --nproc-per-node 2 on one of two nodes; shortened in the middle
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/src/train.py", line 5, in <module>
[rank1]:     raise RuntimeError("shard 3 is damaged")
[rank1]: RuntimeError: shard 3 is damaged
[rank0]: Traceback (most recent call last):
[rank0]:   File "/src/train.py", line 8, in <module>
[rank0]:     dist.all_reduce(x)
[rank0]: torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:35781
E1122 19:05:48.294000 31544 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitco
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 10, in <module>
    sys.exit(main())
             ^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 386, in launch
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-22_19:05:48
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 31566)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_19:05:48
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 31567)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
======================================================
"""

ABORTED = """\
done 0 2 2.0
terminate called without an active exception
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 10, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_19:05:48
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 31567)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 31567
======================================================
"""

ACCELERATE = (
    TRACEBACK
    + """\
Traceback (most recent call last):
  File "/venv/bin/accelerate", line 10, in <module>
    sys.exit(main())
  File "/venv/lib/python3.11/site-packages/accelerate/commands/launch.py", line 999, in simple
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.
"""
)

CPP = """\
terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
"""


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (TRACEBACK, "ValueError: bad config: lr=-1"),
        ("step 1\nstep 2\n" + TRACEBACK + "wandb: finished\n", "ValueError: bad config: lr=-1"),
        (CHAINED, "FileNotFoundError: no checkpoint"),
        (TORCHRUN, "RuntimeError: shard 3 is damaged"),
        (
            TORCHRUN.replace("torch.distributed.DistBackendError: Connection", "OSError: file"),
            "RuntimeError: shard 3 is damaged",
        ),
        (ABORTED, "rank 0: Signal 6 (SIGABRT)"),
        (ACCELERATE, "ValueError: bad config: lr=-1"),
        (CPP, "CUDA error: an illegal memory access was encountered"),
        (
            TRACEBACK.replace("ValueError: bad config: lr=-1", "KeyboardInterrupt"),
            "KeyboardInterrupt",
        ),
        ("Error: no traceback, no exception\n", ""),
        ("RuntimeError: NaN\nValueError: the last\n", "ValueError: the last"),
        ("[rank3]: OSError: [Errno 28] full\nValueError: b\n", "OSError: [Errno 28] full"),
        ("RuntimeError: Connection closed by peer\nValueError: b\n", "ValueError: b"),
        ("OSError: [Errno 28] full\n" + TRACEBACK, "ValueError: bad config: lr=-1"),
        (
            "OSError: [Errno 28] full\n" + TRACEBACK.replace("ValueError", "DistNetworkError"),
            "DistNetworkError: bad config: lr=-1",
        ),
        ("12:00 WARN metrics: host unreachable\nKeyError: 1\n", "KeyError: 1"),
        (
            "h:1:2 [0] net.h:3 WARN Connect: No route to host\n",
            "h:1:2 [0] net.h:3 WARN Connect: No route to host",
        ),
        ("OSError: [Errno 28] full\nKeyError: 1\nImportError: b\n", "OSError: [Errno 28] full"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
        ),
        ("", ""),
    ],
)
def test_the_exception_that_explains_a_crash_is_shown(log, shown) -> None:
    assert crash_text(log) == shown


def test_who_only_notices_the_end_of_a_peer_says_so_if_there_is_nothing_else() -> None:
    peer = TORCHRUN.partition("[rank0]")[2].partition("E1122")[0]

    assert crash_text("[rank0]" + peer).startswith("torch.distributed.DistBackendError: Conn")


@pytest.mark.parametrize(
    ("text", "is_peer"),
    [
        ("torch.distributed.DistBackendError: Connection closed by peer [::1]:1", True),
        ("RuntimeError: [/pytorch/third_party/gloo/pair.cc:553] Connection reset by peer", True),
        ("torch.distributed.DistBackendError: NCCL error: remote process exited or there", True),
        ("torch.distributed.DistNetworkError: Failed to recv, got 0 bytes", True),
        ("torch.distributed.DistStoreError: wait timeout after 300000ms", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'model.pt'", False),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", False),
        ("torch.OutOfMemoryError: CUDA out of memory.", False),
        ("", False),
    ],
)
def test_errors_of_collectives_are_distinguished_from_others(text, is_peer) -> None:
    assert is_peer_failure(text) == is_peer


@given(st.text(max_size=3000))
def test_whatever_a_rank_prints_the_text_is_short_and_on_one_line(log) -> None:
    for shown in (crash_text(log), crash_text(f"{TRACEBACK}{log}"), one_line(log, SHOWN_CHARS)):
        assert len(shown) <= SHOWN_CHARS
        assert shown.isprintable()


def test_control_characters_of_an_exception_are_not_shown() -> None:
    log = TRACEBACK.replace("bad config", "\x1b[2Jbad\tconfig")

    assert crash_text(log) == "ValueError: [2Jbad config: lr=-1"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            {"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1"}}},
            "ValueError: no",
        ),
        ({"message": "ValueError: no"}, "ValueError: no"),
        ({"message": {"message": 7}}, ""),
        ({"other": 1}, ""),
        ([], ""),
    ],
)
def test_the_error_file_of_torchelastic_is_read(content, shown) -> None:
    assert error_file_text(json.dumps(content)) == shown


@given(st.text(max_size=200))
def test_no_error_file_makes_it_fail(content) -> None:
    assert error_file_text(content).isprintable()
