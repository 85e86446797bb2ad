from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.detectors.contract import Detector, LogLine, Profile, Readings, Sample
from holdfast.detectors.table import detectors
from holdfast.engine.agent_loop import CATCH_UP_READS, HARDWARE_EVERY, AgentLoop
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Severity
from holdfast.model.names import Reason
from holdfast.model.report import NodeReport

START = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
BEAT = timedelta(milliseconds=500)
MOMENT = timedelta(milliseconds=1)


class SteppedClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time


class FakeHost:
    """A host whose log is a list, read line by line, from the last commit on after a restart."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.boot = "b1"
        self.log: list[str] = []
        self.read_lines = 0
        self.committed_lines = 0
        self.commits = 0
        self.fails = False
        self.commit_fails = False
        self.endless = False
        self.samples: list[dict[str, Sample]] = []

    def boot_id(self) -> str:
        return self.boot

    def read(self) -> Readings:
        if self.samples:
            return Readings(samples=self.samples.pop(0))
        if self.fails:
            raise BackendError("the log cannot be read")
        if self.endless:
            self.log.append("45, x")
        if self.read_lines == len(self.log):
            return Readings()
        message = f"NVRM: Xid (PCI:0000:b9:00): {self.log[self.read_lines]}"
        self.read_lines += 1
        return Readings(kernel_log=(LogLine(message=message, observed_at=self.clock.now()),))

    def commit(self) -> None:
        if self.commit_fails:
            raise BackendError("the cursors cannot be written")
        self.commits += 1
        self.committed_lines = self.read_lines


class FakeSink:
    """A sink that remembers all it was told, in order."""

    def __init__(self) -> None:
        self.reported: list[NodeReport | int] = []
        self.fails = False

    @property
    def reports(self) -> list[NodeReport]:
        return [entry for entry in self.reported if isinstance(entry, NodeReport)]

    @property
    def beats(self) -> list[int]:
        return [entry for entry in self.reported if isinstance(entry, int)]

    def last(self) -> NodeReport | None:
        return self.reports[-1] if self.reports else None

    def publish(self, report: NodeReport) -> None:
        if self.fails:
            raise BackendError("no space")
        self.reported.append(report)

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        assert boot_id
        self.reported.append(sequence)


class Agent:
    def __init__(self, *extra: Detector) -> None:
        self.clock = SteppedClock()
        self.host = FakeHost(self.clock)
        self.sink = FakeSink()
        self.detectors = (*extra, *detectors(Profile.HYPERPOD))
        self.start()

    def start(self) -> None:
        self.host.read_lines = self.host.committed_lines
        self.loop = AgentLoop(
            host=self.host,
            sink=self.sink,
            detectors=self.detectors,
            node="n1",
            clock=self.clock,
            heartbeat=BEAT,
        )

    def log(self, *lines: str) -> None:
        self.host.log.extend(lines)

    def step(self, after: timedelta = timedelta(0)) -> datetime:
        self.clock.time += after
        return self.loop.step()

    def steps(self) -> None:
        """Step until there is nothing to do before the next heartbeat."""
        while self.step() <= self.clock.time:
            pass


@pytest.fixture
def agent() -> Agent:
    agent = Agent()
    agent.steps()
    return agent


def test_the_first_report_comes_at_once_and_a_heartbeat_after_it() -> None:
    agent = Agent()

    wake_at = agent.step()

    first, beat = agent.sink.reported
    assert first == NodeReport(node="n1", boot_id="b1", sequence=1, reported_at=START)
    assert beat == 1
    assert wake_at == START + BEAT


def test_the_first_report_knows_all_that_was_logged_before() -> None:
    agent = Agent()
    agent.log(*["13, x"] * 50, "74, x")

    agent.step()

    [report] = agent.sink.reports
    assert [fault.code for fault in report.faults] == [74]


@pytest.mark.attack
def test_the_first_report_does_not_wait_for_the_end_of_a_storm() -> None:
    agent = Agent()
    agent.host.endless = True

    agent.step()

    assert agent.host.read_lines == CATCH_UP_READS
    assert len(agent.sink.reports) == 1


def test_a_fault_is_reported_at_once(agent: Agent) -> None:
    agent.log("74, x")

    wake_at = agent.step(MOMENT)

    assert [fault.code for fault in agent.sink.reports[-1].faults] == [74]
    assert agent.sink.reports[-1].sequence == 2
    assert agent.sink.beats == [1]
    assert wake_at == agent.clock.time  # there may be more to read
    assert agent.step() == START + BEAT


def test_nothing_new_is_reported_by_heartbeats_alone(agent: Agent) -> None:
    for _ in range(5):
        assert agent.step(BEAT) == agent.clock.time + BEAT

    assert agent.sink.beats == [1, 2, 3, 4, 5, 6]
    assert len(agent.sink.reports) == 1


def test_no_heartbeat_before_it_is_due(agent: Agent) -> None:
    agent.step(BEAT - MOMENT)
    assert agent.sink.beats == [1]

    agent.step(MOMENT)
    assert agent.sink.beats == [1, 2]


def test_a_notice_of_a_new_kind_is_reported_at_once(agent: Agent) -> None:
    agent.log("13, x")
    agent.step(MOMENT)

    assert [notice.code for notice in agent.sink.reports[-1].notices] == [13]


@pytest.mark.parametrize("line", ["13, y", "74, y"])
def test_repetitions_wait_for_the_next_heartbeat(agent: Agent, line: str) -> None:
    agent.log("13, x", "74, x")
    agent.steps()
    reported = len(agent.sink.reports)

    agent.log(*[line] * 100)
    agent.steps()
    assert len(agent.sink.reports) == reported

    agent.step(BEAT)
    assert len(agent.sink.reports) == reported + 1


def test_repetitions_are_counted(agent: Agent) -> None:
    agent.log(*["74, x"] * 100)
    agent.steps()
    agent.step(BEAT)

    assert agent.sink.reports[-1].faults[0].count == 100


def test_an_error_that_hits_the_next_application_is_reported_at_once(agent: Agent) -> None:
    agent.log("94, x")
    agent.steps()
    agent.log("94, x")
    agent.step(MOMENT)

    assert agent.sink.reports[-1].faults[0].since == agent.clock.time


@pytest.mark.parametrize("changed", ["0x2 (Node Reboot Required)", "0x4 (Drain and Reset)"])
def test_another_remedy_or_urgency_of_a_fault_is_reported_at_once(
    agent: Agent, changed: str
) -> None:
    words = "154, GPU recovery action changed from 0x0 (None) to "
    agent.log(f"{words}0x1 (GPU Reset Required)")
    agent.steps()
    before = agent.sink.reports[-1].faults[0]

    agent.log(f"{words}{changed}")
    agent.step(MOMENT)

    after = agent.sink.reports[-1].faults[0]
    assert (after.remedy, after.urgency) != (before.remedy, before.urgency)
    assert after.since == before.since


def test_a_fault_that_was_taken_back_is_reported_at_once(agent: Agent) -> None:
    agent.log("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    agent.steps()
    assert len(agent.sink.reports[-1].faults) == 1

    agent.log("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    agent.step(MOMENT)

    assert agent.sink.reports[-1].faults == ()


def test_what_was_reported_is_committed(agent: Agent) -> None:
    agent.log("74, x")

    agent.step(MOMENT)

    assert agent.host.committed_lines == 1


def test_what_was_not_reported_yet_is_not_committed(agent: Agent) -> None:
    agent.log("74, x")
    agent.steps()
    agent.log("74, x")

    agent.steps()
    assert agent.host.committed_lines == 1

    agent.step(BEAT)
    assert agent.host.committed_lines == 2


def test_between_heartbeats_nothing_is_committed_without_news(agent: Agent) -> None:
    commits = agent.host.commits

    for _ in range(10):
        agent.step(MOMENT)

    assert agent.host.commits == commits


def test_a_new_agent_of_the_same_boot_knows_what_the_last_one_reported(agent: Agent) -> None:
    agent.log("74, x", "13, x")
    agent.steps()
    known = agent.sink.reports[-1]

    agent.start()
    agent.steps()

    assert agent.sink.reports[-1].faults == known.faults
    assert agent.sink.reports[-1].notices == known.notices


def test_after_a_reboot_nothing_is_known(agent: Agent) -> None:
    agent.log("74, x", "13, x")
    agent.steps()

    agent.host.boot = "b2"
    agent.host.log.clear()
    agent.host.committed_lines = 0
    agent.start()
    agent.steps()

    assert agent.sink.reports[-1] == NodeReport(
        node="n1", boot_id="b2", sequence=1, reported_at=agent.clock.time
    )


def test_a_report_that_could_not_be_written_is_written_later(agent: Agent) -> None:
    agent.log("74, x")
    agent.sink.fails = True
    with pytest.raises(BackendError):
        agent.step(MOMENT)
    assert agent.host.committed_lines == 0

    agent.sink.fails = False
    agent.step(MOMENT)

    assert [fault.code for fault in agent.sink.reports[-1].faults] == [74]
    assert agent.sink.reports[-1].sequence == 2
    assert agent.host.committed_lines == 1


def test_heartbeats_go_on_while_reports_cannot_be_written(agent: Agent) -> None:
    agent.log("74, x")
    agent.sink.fails = True

    for _ in range(3):
        with pytest.raises(BackendError):
            agent.step(BEAT)

    assert agent.sink.beats == [1, 2, 3, 4]


def test_without_a_first_report_there_is_no_heartbeat() -> None:
    agent = Agent()
    agent.sink.fails = True

    for _ in range(3):
        with pytest.raises(BackendError):
            agent.step(BEAT)

    assert agent.sink.reported == []


def test_a_log_that_cannot_be_read_silences_the_agent(agent: Agent) -> None:
    agent.host.fails = True

    with pytest.raises(BackendError, match="the log cannot be read"):
        agent.step(BEAT)
    assert agent.sink.beats == [1]

    agent.host.fails = False
    agent.step()
    assert agent.sink.beats == [1, 2]


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1), timedelta(days=-400)])
def test_a_clock_that_jumps_stops_no_heartbeat(agent: Agent, jump: timedelta) -> None:
    wake_at = agent.step(jump)

    assert agent.sink.beats == [1, 2]
    assert wake_at == agent.clock.time + BEAT


def broken(*, reads: str = "kernel_log") -> Detector:
    def detect(readings: Readings) -> list[Finding]:
        raise ZeroDivisionError("no words")

    return Detector(name="broken", reads=frozenset({reads}), detect=detect)


def test_a_detector_that_fails_stops_no_other_and_is_reported() -> None:
    agent = Agent(broken())
    agent.log("74, x")

    agent.steps()

    [report] = agent.sink.reports
    assert [fault.code for fault in report.faults] == [74]
    [notice] = report.notices
    assert notice.reason == Reason.DETECTOR_FAILED
    assert notice.severity is Severity.WARNING
    assert notice.device == "broken"
    assert notice.message == "the detector broken failed: ZeroDivisionError: no words"


def test_a_detector_is_called_for_news_of_what_it_reads_only() -> None:
    calls: list[Readings] = []

    def recorder(reads: frozenset[str]) -> Detector:
        def detect(readings: Readings) -> list[Finding]:
            calls.append(readings)
            return []

        return Detector(name=f"reads {sorted(reads)}", reads=reads, detect=detect)

    agent = Agent(recorder(frozenset()), recorder(frozenset({"kernel_log"})))
    agent.steps()
    assert calls == []

    agent.log("74, x")
    agent.steps()
    assert len(calls) == 1


def test_an_agent_that_is_killed_at_any_line_loses_nothing(agent: Agent) -> None:
    agent.log("74, x", "13, x")
    agent.steps()
    agent.log("95, x")
    agent.sink.fails = True
    with pytest.raises(BackendError):
        agent.steps()

    agent.sink.fails = False
    agent.host.commit_fails = True
    agent.start()
    with pytest.raises(BackendError):
        agent.steps()

    agent.host.commit_fails = False
    agent.start()
    agent.steps()

    report = agent.sink.reports[-1]
    assert {fault.code for fault in report.faults} == {74, 95}
    assert [notice.code for notice in report.notices] == [13]


def test_a_fault_of_state_outlives_a_blind_source_and_ends_with_its_evidence() -> None:
    agent = Agent()
    link = {"m": "infiniband", "m/1/state": "1: DOWN"}

    def reported(**fields: object) -> tuple[list[str], list[str]]:
        agent.host.samples.append(
            {"infiniband": Sample(name="infiniband", taken_at=agent.clock.time, **fields)}
        )
        agent.steps()
        report = agent.sink.reports[-1]
        return [one.reason for one in report.faults], [one.reason for one in report.notices]

    assert reported(values={**link, "m/1/down_s": "300"}) == ([Reason.LINK_DOWN], [])
    assert reported(error="it hangs") == ([Reason.LINK_DOWN], [Reason.SOURCE_FAILED])
    assert reported(values={"m": "infiniband", "m/1/state": "4: ACTIVE"}) == ([], [])


WINDOW = timedelta(minutes=5)


def doubting(detector: Detector) -> Detector:
    """The detector, with a second witness asked for."""

    def detect(readings: Readings) -> list[Finding]:
        return [replace(one, corroborated_within=WINDOW) for one in detector.detect(readings)]

    return replace(detector, detect=detect)


def no_gpu_is_left(agent: Agent) -> None:
    sample = Sample(
        name="nvidia-smi",
        taken_at=agent.clock.time,
        text="No devices were found",
        seen=frozenset({"gpu/00000000:B9:00.0"}),
    )
    agent.host.samples.append({"nvidia-smi": sample})


def test_what_waits_for_a_witness_waits_on_in_the_next_agent() -> None:
    agent = Agent()
    agent.detectors = tuple(
        doubting(one) if one.name == "gpu-xid" else one for one in detectors(Profile.HYPERPOD)
    )
    agent.start()
    agent.log("74, x")
    agent.steps()
    [waiting] = agent.sink.reports[-1].notices
    assert agent.sink.reports[-1].faults == ()
    assert waiting.message.startswith("uncorroborated, would need replace: NVRM")

    agent.start()
    agent.steps()
    assert agent.sink.reports[-1].notices == (waiting,)
    no_gpu_is_left(agent)
    agent.steps()

    report = agent.sink.reports[-1]
    assert {fault.remedy for fault in report.faults} == {"replace", "reboot"}
    assert report.suspects == ()
    assert waiting.key not in {notice.key for notice in report.notices}


def test_a_boot_ends_the_wait_for_a_witness() -> None:
    agent = Agent()
    agent.detectors = tuple(map(doubting, detectors(Profile.HYPERPOD)))
    agent.start()
    agent.log("74, x")
    agent.steps()

    agent.host.boot, agent.host.log, agent.host.committed_lines = "b2", [], 0
    agent.start()
    no_gpu_is_left(agent)
    agent.steps()

    assert 74 not in {fault.code for fault in agent.sink.reports[-1].faults}


def edac(at: datetime, corrected: int) -> dict[str, Sample]:
    values = {"mc0/ce_count": str(corrected)}
    return {"edac": Sample(name="edac", taken_at=at, values=values)}


def shown(agent: Agent) -> list[str]:
    """Corrected errors in each report that has devices."""
    groups = [group for report in agent.sink.reports for group in report.hardware]
    return [group.devices[0].values["ecc_corrected"] for group in groups]


def test_new_devices_come_with_the_next_heartbeat_and_new_readings_ten_minutes_later(
    agent: Agent,
) -> None:
    agent.host.samples.append(edac(START, 1))
    agent.steps()
    assert shown(agent) == []
    agent.step(BEAT)
    assert shown(agent) == ["1"]

    for count in (1, 2, 3):  # a heartbeat is half a second
        agent.host.samples.append(edac(agent.clock.time, 1))
        agent.steps()
        agent.step(BEAT)
        assert len(agent.sink.reports) == 2, count
    agent.host.samples.append(edac(agent.clock.time, 1))
    agent.step(HARDWARE_EVERY)
    agent.step(BEAT)
    assert shown(agent) == ["1", "1"]
    assert agent.sink.reports[-1].hardware[0].read_at > START


def test_a_fault_brings_the_newest_readings_of_devices(agent: Agent) -> None:
    agent.host.samples.append(edac(START, 1))
    agent.step(BEAT)
    agent.step(BEAT)
    agent.host.samples.append(edac(agent.clock.time, 1))
    agent.steps()
    agent.log("74, x")
    agent.step(MOMENT)

    report = agent.sink.reports[-1]
    assert [fault.code for fault in report.faults] == [74]
    assert report.hardware[0].read_at > START


def test_repeated_evidence_brings_no_new_readings_before_they_are_due(agent: Agent) -> None:
    agent.log("74, x")
    agent.host.samples.append(edac(START, 1))
    agent.steps()
    agent.step(BEAT)
    agent.host.samples.append(edac(agent.clock.time, 1))
    agent.log("74, x")
    agent.steps()
    agent.step(BEAT)

    report = agent.sink.reports[-1]
    assert report.faults[0].count == 2
    assert report.hardware[0].read_at == START


def test_an_agent_of_the_same_boot_keeps_the_devices(agent: Agent) -> None:
    agent.host.samples.append(edac(START, 1))
    agent.step(BEAT)
    agent.step(BEAT)

    agent.start()
    agent.steps()
    assert agent.sink.reports[-1].hardware[0].read_at == START
    agent.host.boot = "b2"
    agent.start()
    agent.steps()
    assert agent.sink.reports[-1].hardware == ()


def test_a_bug_in_the_inventory_of_devices_stops_no_detection(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("holdfast.engine.agent_loop.inventory", fails)
    agent.log("74, x")
    agent.steps()

    report = agent.sink.reports[-1]
    assert [fault.code for fault in report.faults] == [74]
    assert [one.reason for one in report.notices] == [Reason.DETECTOR_FAILED]
