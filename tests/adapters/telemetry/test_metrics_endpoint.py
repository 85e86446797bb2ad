import time
import urllib.error
import urllib.request
from datetime import timedelta

import pytest

from holdfast.adapters.telemetry.exposition import CONTENT_TYPE
from holdfast.adapters.telemetry.metrics import AgentMetrics
from holdfast.adapters.telemetry.metrics_endpoint import MetricsEndpoint


def test_an_agent_without_a_heartbeat_is_not_well_until_it_has_one() -> None:
    endpoint = MetricsEndpoint(AgentMetrics("n1", []), timeout=timedelta(seconds=2))
    url = f"http://127.0.0.1:{endpoint.serve('127.0.0.1', 0)}"

    time.sleep(2.1)
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"{url}/healthz")  # noqa: S310
    with answer.value as error:
        assert error.code == 503
        assert error.read().startswith(b"no heartbeat for ")
    endpoint.heartbeat_sent()
    with urllib.request.urlopen(f"{url}/healthz") as well:  # noqa: S310
        assert well.read() == b"ok\n"
    with urllib.request.urlopen(f"{url}/metrics") as metrics:  # noqa: S310
        assert metrics.headers["Content-Type"] == CONTENT_TYPE
    endpoint.close()
