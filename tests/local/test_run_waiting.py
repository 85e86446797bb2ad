"""How a run sleeps."""

import fcntl
import os
import resource
from contextlib import closing
from datetime import timedelta

import pytest

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.waiting import Waiting

BEYOND_SELECT = 1500
"""``select`` takes descriptors up to 1,023."""


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= BEYOND_SELECT:
        pytest.skip(f"this machine lets a process have {hard} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, BEYOND_SELECT + 1), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_run_is_woken_however_many_descriptors_it_has(tmp_path) -> None:
    run, clock = RunDir(tmp_path / "run"), SystemClock()
    run.create()
    woken, wake = os.pipe()
    high = fcntl.fcntl(woken, fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT)
    with closing(LocalStore(run.state, create=True)) as store:
        delays = Delays(boot=timedelta(0), replace=timedelta(0))
        machines = LocalMachines(run, store, clock, delays, lambda *_: ())
        with closing(Waiting(run, machines, clock, timedelta(0))) as waiting:
            os.write(wake, b"x")
            waiting.until(clock.now() + timedelta(minutes=5), high)

    os.set_blocking(high, False)
    with pytest.raises(BlockingIOError):
        os.read(high, 1)  # it was read when the run awoke
    for descriptor in (woken, wake, high):
        os.close(descriptor)
