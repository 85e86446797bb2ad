import pytest
from local_run import LocalRun


@pytest.fixture
def run(tmp_path):
    one = LocalRun(tmp_path / "home")
    yield one
    one.stop()
    one.wait_for_nothing_left()
