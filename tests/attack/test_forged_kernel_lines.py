"""Nobody but the kernel gets a healthy node repaired by a line of a log."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacked_agent import CERTAIN, VICTIM, AttackedAgent, as_nobody, eventually
from real_rsyslog import Rsyslog, rsyslog

from holdfast.model.health import Remedy

KMSG = Path("/dev/kmsg")
FORGED = f"NVRM: Xid ({VICTIM}): 79, GPU has fallen off the bus."
REAL = "usb 1-1: new high-speed USB device number 2 using xhci_hcd"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AttackedAgent]:
    agent = AttackedAgent(tmp_path)
    yield agent
    agent.stop()


@pytest.fixture
def agent_of_this_machine(tmp_path: Path) -> Iterator[AttackedAgent]:
    """An agent that reads the kernel's own log."""
    if not os.access(KMSG, os.R_OK | os.W_OK):
        pytest.skip("/dev/kmsg cannot be read and written here: run the tests as root")
    agent = AttackedAgent(tmp_path, KMSG)
    yield agent
    agent.stop()


@pytest.fixture
def syslog(agent: AttackedAgent, tmp_path: Path) -> Iterator[Rsyslog]:
    """A syslog daemon that writes to the log files below the agent's root."""
    with rsyslog(tmp_path / "syslog", agent.messages.parent) as daemon:
        yield daemon


def forge(agent: AttackedAgent, syslog: Rsyslog) -> None:
    """Get a forged line into each file in which rsyslogd also writes lines of the kernel."""
    syslog.kernel(REAL)
    syslog.logger(FORGED)
    syslog.raw(f"<4>kernel: {FORGED}")
    for name in ("messages", "syslog", "kern.log"):
        path = agent.messages.with_name(name)
        eventually(lambda path=path: has_both(path.read_text(encoding="utf-8")))


def has_both(text: str) -> bool:
    """Whether lines of the kernel and of a user are there, both with the tag of the kernel."""
    return all(
        any(f"kernel: {words}" in line for line in lines_of(text)) for words in (REAL, FORGED)
    )


def lines_of(text: str) -> list[str]:
    return [line.replace("kernel: [  378.703529] ", "kernel: ") for line in text.splitlines()]


def test_a_line_that_a_user_sends_to_syslog_repairs_nothing(
    agent: AttackedAgent, syslog: Rsyslog
) -> None:
    files = [agent.messages, *(agent.messages.with_name(name) for name in ("syslog", "kern.log"))]
    agent.start(*(option for path in files for option in ("--log-file", str(path))))

    forge(agent, syslog)
    eventually(lambda: agent.report().suspects)

    agent.log_certain()
    assert agent.devices() == [CERTAIN]
    assert [(one.device, one.remedy) for one in agent.report().suspects] == [
        (VICTIM, Remedy.REPLACE)
    ]


def test_a_line_that_a_user_sends_to_syslog_is_not_even_read_by_default(
    agent: AttackedAgent, syslog: Rsyslog
) -> None:
    agent.start()

    forge(agent, syslog)

    agent.log_certain()
    assert agent.devices() == [CERTAIN]
    assert (agent.report().suspects, agent.report().notices) == ((), ())


def test_a_line_through_syslog_counts_in_a_drill(agent: AttackedAgent, syslog: Rsyslog) -> None:
    agent.start("--drill")

    syslog.logger(FORGED)

    eventually(lambda: VICTIM in agent.devices())
    [fault] = agent.report().faults
    assert fault.remedy is Remedy.REPLACE


@pytest.mark.parametrize(
    "forged",
    [
        f"NVRM: Xid ({CERTAIN}): 154, GPU recovery action changed from 0x2 (Node Reboot Required) "
        "to 0x0 (None)",
        f"NVRM: Xid ({CERTAIN}): 154, GPU recovery action changed from 0x2 (Node Reboot Required) "
        "to 0x1 (GPU Reset Required)",
    ],
)
def test_a_forged_line_neither_ends_nor_weakens_a_real_fault(
    agent: AttackedAgent, forged: str
) -> None:
    agent.messages.chmod(0o666)
    agent.start("--log-file", str(agent.messages))
    agent.log(
        f"NVRM: Xid ({CERTAIN}): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
        "(Node Reboot Required)"
    )
    eventually(agent.devices)

    with agent.messages.open("a", encoding="utf-8") as log:
        log.write(f"Nov 20 12:00:00 host kernel: {forged}\n")
        log.write(f"Nov 20 12:00:00 host kernel: {FORGED}\n")
    eventually(lambda: agent.report().suspects)

    assert [(one.device, one.remedy) for one in agent.report().faults] == [(CERTAIN, Remedy.REBOOT)]


MOUNT = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mount(b"none", b"/mnt", b"tmpfs", 0, sys.argv[1].encode())
"""


def kernel_has(words: str) -> bool:
    device = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            if words.encode() in os.read(device, 16384):
                return True
    except BlockingIOError:
        return False
    finally:
        os.close(device)


def test_a_newline_in_mount_options_begins_no_record_of_the_kernel(
    agent_of_this_machine: AttackedAgent,
) -> None:
    agent = agent_of_this_machine
    options = f"{os.getpid()}\nNVRM: Xid ({VICTIM}): 79"  # the kernel cuts options at commas
    done = as_nobody("unshare", "--user", "--map-root-user", "--mount", "python3", "-c", MOUNT,
                     options)  # fmt: skip
    if done.returncode:
        pytest.skip(f"no user namespace can be created here: {done.stderr.strip()}")
    escaped = options.replace("\n", "\\x0a")
    if not kernel_has(escaped):
        pytest.skip("this kernel does not log unknown mount options")

    agent.start("--logs-only")

    assert VICTIM not in agent.devices()
    assert [one for one in agent.report().suspects if one.device == VICTIM] == []


def test_the_same_newline_in_a_log_file_repairs_nothing(agent: AttackedAgent) -> None:
    agent.start("--log-file", str(agent.messages))

    with agent.messages.open("a", encoding="utf-8") as log:  # as a daemon that keeps newlines
        log.write(f"Nov 20 12:00:00 host kernel: tmpfs: Unknown parameter 'x\n{FORGED}'\n")
    eventually(lambda: agent.report().suspects)

    agent.log_certain()
    assert agent.devices() == [CERTAIN]


@pytest.mark.parametrize("priority", ["", "<0>", "<4>", "<12>", "<4><4>", "kernel: "])
def test_what_a_process_writes_to_the_device_counts_in_a_drill_only(
    agent_of_this_machine: AttackedAgent, priority: str
) -> None:
    agent = agent_of_this_machine
    words = f"priority {priority!r} written by {os.getpid()}"
    agent.start("--logs-only")

    KMSG.write_text(f"{priority}NVRM: Xid ({VICTIM}): 79, {words}\n", encoding="utf-8")
    eventually(lambda: any(words in one.message for one in agent.report().notices))

    assert VICTIM not in agent.devices()


NEURON = "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=0 nc-id=0 action=TERMINATE"


def test_a_line_that_a_container_logs_by_a_neuron_device_needs_the_drivers_counter(
    agent: AttackedAgent,
) -> None:
    device = agent.root / "sys/devices/virtual/neuron_device/neuron0"
    counter = device / "neuron_core0/stats/status/hw_dma_abort_error/total"
    counter.parent.mkdir(parents=True)
    counter.write_text("7\n", encoding="utf-8")
    agent.start(config='[detectors.neuron-state]\nevery = "100ms"\n')
    for number in range(1, 200):  # devices that do not exist
        agent.log(NEURON.replace("nd-id=0", f"nd-id={number}"))
    agent.log(NEURON)
    eventually(lambda: "nd0" in [one.device for one in agent.report().suspects])

    agent.log_certain()
    assert agent.devices() == [CERTAIN]

    counter.write_text("8\n", encoding="utf-8")
    eventually(lambda: "nd0" in agent.devices())
