"""A provider that refuses to list machines stops one cluster, not the server."""

import pytest
from created_calls import Lab, group

from holdfast.model.errors import ProviderError


@pytest.fixture
def lab(tmp_path):
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    yield lab
    lab.database.close()


def test_a_refused_listing_is_reported_once_and_tried_again(lab) -> None:
    lab.create(group("gpu", 1))
    lab.groups.calls.failing["machines"] = ProviderError("not authorized to list lab/gpu")
    for _ in range(3):
        lab.reconciler.wake("lab")
        lab.reconciler.step()
    assert lab.reported == ["lab: not authorized to list lab/gpu"]
    assert (lab.status(), lab.listed()) == ("Creating", [])

    lab.groups.calls.failing.clear()
    lab.reconciler.wake("lab")
    lab.settle()
    assert (lab.status(), len(lab.listed())) == ("InService", 1)
