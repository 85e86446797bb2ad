"""Jobs of every kind through faults of every kind, with their operators and a real controller.

The outcomes are cells of the fault matrix.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fatal_proxy import FatalProxy, fatal_proxy
from gangs import Set
from job_cells import Cell, Until, cells, play
from job_hall import OPERATORS, UPPER, Hall, a_hall
from job_laws import monitor, untouched
from job_matrix import KILLED, KILLED_SPENT, OPERATORS_AWAY, ROWS
from machines import Controller, stays

from holdfast.adapters.kubernetes.client.errors import NotFound
from tests.engines.control_plane import PROGRAMS, Built
from tests.engines.matrix import Matrix
from tools import fault_matrix

STEPS = 4
"""Writes of a restart: stopped, judged, started, running."""

LEASE = "/apis/coordination.k8s.io/v1/namespaces/holdfast/leases/holdfast-controller"


@pytest.fixture(scope="module")
def hall(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    binaries = built(*PROGRAMS, *OPERATORS, *UPPER, "kubectl", "helm")
    with a_hall(binaries, tmp_path_factory.mktemp("hall")) as hall:
        hall.control()
        hall.bring_mpi()
        yield hall


def column(cell: Cell) -> str:
    return f"{fault_matrix.OPERATORS}/{cell.kind.kind}"


def come_to_an_end(hall: Hall, played: list[Cell], matrix: Matrix) -> None:
    """As recorded; where results are recorded, whatever they are in the end."""

    def script(cell: Cell) -> Iterator[Until]:
        recorded = fault_matrix.outcome(cell.row.name, column(cell))
        yield Until(f"as recorded: {recorded}", lambda: cell.outcome == recorded)

    try:
        play((cell, script) for cell in played)
    finally:
        if matrix.is_recording:
            for cell in played:
                matrix.record(cell.row.name, column(cell), cell.outcome)
    monitor(hall.chronicle.changes, played)


def test_every_job_comes_out_of_every_fault_as_the_table_says(hall: Hall, matrix: Matrix) -> None:
    played = cells(hall.fleet, hall.chronicle, *ROWS)
    hall.submit(played)

    play((cell, cell.row.script) for cell in played)

    come_to_an_end(hall, played, matrix)
    for cell in played:
        if cell.row.name == "bystander":
            untouched(hall.chronicle.changes, cell)


def test_jobs_whose_operators_are_away_go_on_once_they_are_back(hall: Hall, matrix: Matrix) -> None:
    played = cells(hall.fleet, hall.chronicle, OPERATORS_AWAY)
    hall.submit(played)
    play((cell, cell.row.script) for cell in played)

    hall.stop_operators()
    for cell in played:
        cell.breaks(1)
    heard = [cell for cell in played if cell.kind is not Set]  # those have a webhook: it is down
    play((cell, lambda cell: iter((cell.is_in("stopping"),))) for cell in heard)
    stays(lambda: {cell.phase for cell in heard} == {"stopping"}, 1)
    hall.start_operators()

    come_to_an_end(hall, played, matrix)


class Gauntlet:
    """Controllers that die at the writes of what becomes of a job.

    Each write about a PyTorchJob fails once before it is carried out, and costs a controller again
    afterwards; those about others only afterwards.
    """

    def __init__(self, hall: Hall, folder: Path, stack: ExitStack) -> None:
        self.hall = hall
        self.folder = folder
        self.stack = stack
        self.deaths: list[str] = []
        self.is_on = False
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start(self) -> None:
        """One more controller."""
        folder = self.folder / f"proxy-{len(self.hall.fleet.controllers)}"
        folder.mkdir()
        proxy = self.stack.enter_context(fatal_proxy(self.hall.cluster.plane, folder))
        proxy.count = lambda method, path: self._judge(proxy, method, path)
        controller = self.hall.control(kubeconfig=proxy.kubeconfig)
        proxy.strike = lambda: self._end(controller)

    @property
    def living(self) -> list[Controller]:
        return [one for one in self.hall.fleet.controllers if one.process.poll() is None]

    def _judge(self, proxy: FatalProxy, method: str, path: str) -> bool:
        address = path.partition("?")[0]
        is_about_jobs = any(
            f"/{plural}/" in address for plural in ("pytorchjobs", "mpijobs", "jobsets", "jobs")
        )
        if method != "PATCH" or not is_about_jobs or not self.is_on:
            return False
        is_thorough = "/pytorchjobs/" in address
        with self._lock:
            self._seen[address] += 1
            if self._seen[address] > STEPS * (1 + is_thorough):
                return False
            is_answered = not is_thorough or self._seen[address] % 2 == 0
            proxy.is_answered = is_answered
            self.deaths.append(f"{'after' if is_answered else 'before'} {address}")
        return True

    def _end(self, controller: Controller) -> None:
        """Nobody has to wait for the lease of the dead."""
        controller.kill()
        try:
            self.hall.fleet.api.delete(LEASE)
        except NotFound:
            return


def test_a_controller_that_is_killed_at_each_step_leaves_nothing_undone(
    hall: Hall, tmp_path: Path, matrix: Matrix
) -> None:
    played = cells(hall.fleet, hall.chronicle, KILLED, KILLED_SPENT)
    hall.submit(played)
    play((cell, cell.row.script) for cell in played)
    for controller in hall.fleet.controllers:
        if controller.process.poll() is None:
            controller.end()

    with ExitStack() as stack:
        gauntlet = Gauntlet(hall, tmp_path, stack)
        gauntlet.start()
        gauntlet.is_on = True
        for cell in played:
            cell.breaks(1)

        def script(cell: Cell) -> Iterator[Until]:
            def holds() -> bool:
                if len(gauntlet.living) < 2:
                    gauntlet.start()
                return cell.outcome["job"] == "failed" or cell.runs(2).holds()

            yield Until("through", holds)

        try:
            play((cell, script) for cell in played)
        finally:
            gauntlet.is_on = False
            print("\n".join(gauntlet.deaths))  # noqa: T201
        come_to_an_end(hall, played, matrix)
        (job_set,) = [cell.object for cell in played if cell.kind is Set]
        assert job_set is not None
        assert job_set["status"]["restarts"] == 1, "one restart, whoever took it over"
        for controller in gauntlet.living:
            controller.end()
    hall.control()
    assert len(gauntlet.deaths) >= 2 * STEPS + 2 * 3 + 3 * STEPS
