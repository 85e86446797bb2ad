from datetime import UTC, datetime

import pytest
from local_run import LocalRun

from tests.engines.matrix import outcome_of, seconds_of
from tools.fault_matrix import LOCAL


@pytest.fixture
def run(tmp_path):
    one = LocalRun(tmp_path / "home")
    yield one
    one.stop()
    one.wait_for_nothing_left()


@pytest.fixture
def recorded(run, matrix):
    """Puts the job after a fault, which follows the fixtures, into the fault matrix."""
    began = datetime.now(UTC)

    def record(fault):
        run.wait_until("the job to run", lambda: run.record().phase == "running")
        store = run.store()
        job, (incident, *_) = run.record(), (*store.list_incidents(), None)
        store.close()
        node = {None: "", "replace": "replaced", "reboot": "rebooted"}[incident and incident.remedy]
        found = outcome_of(job, node=node)
        matrix.record(fault, f"{LOCAL}/processes", found, seconds_of(began, job, incident))

    return record
