"""The cluster API of a real Slurm, asked by many threads as a server has them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from slurm_fleet_at_work import Fleet

from holdfast.api.clusters import Cluster
from holdfast.apps.api.adopted import clusters_of
from holdfast.apps.target import Where
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus

T = TypeVar("T")


def test_nodes_are_listed_and_rebooted_from_any_thread(fleet: Fleet) -> None:
    fleet.control()
    where = Where(state_dir=fleet.state_dir)
    with ExitStack() as opened, ThreadPoolExecutor(4) as threads:
        opener = clusters_of(where, "train", opened)

        def requested(work: Callable[[Cluster], T]) -> T:
            def call() -> T:
                with opener() as [cluster]:
                    return work(cluster)

            return threads.submit(call).result()

        fleet.until(lambda: len(requested(lambda train: train.nodes())) == len(fleet.machines))
        with opener() as [train]:
            everybody = list(threads.map(lambda _: train.nodes(), range(16)))
        assert {one.name for one in everybody[0]} == set(fleet.machines)
        assert all(one.status is InstanceStatus.RUNNING for one in everybody[0])
        assert {one.addresses for one in everybody[0]} == {("127.0.0.1",)}

        assert requested(lambda train: train.submit("node2", Verb.REBOOT, "ada")) == ""
        fleet.until(
            lambda: any(one.released_at for one in requested(lambda train: train.incidents()))
        )
        [incident] = requested(lambda train: train.incidents())
        assert (incident.node, "ada" in incident.message) == ("node2", True)
