"""EFA devices that talk to themselves, by a fi_pingpong that prints what the real one does."""

import errno

import pytest
from checked_node import CheckedNode
from played_pingpong import add_efa, pingpong

from holdfast.adapters.host.commands import NotStarted
from holdfast.adapters.host.deep_checks.efa_loopback import _make
from holdfast.adapters.host.pingpong import Fabric, run_client
from holdfast.detectors.judgement import HealthState
from holdfast.detectors.thresholds import Thresholds
from tests.ports.builders import NOW

TOO_LONG = "x" * 200_000
"""No program can be started with such an argument."""


@pytest.fixture
def node(tmp_path, capfd) -> CheckedNode:
    made = CheckedNode(tmp_path, capfd.readouterr)
    add_efa(made.root, "rdmap0s29", "rdmap0s30")
    return made


def test_every_device_is_measured_and_the_slowest_counts(node) -> None:
    node.tool(
        "fi_pingpong",
        pingpong(
            rate="'500.00' if device == 'rdmap0s30-rdm' else '2122.41'",
            us="'10.85' if device == 'rdmap0s30-rdm' else '20.50'",
        ),
    )

    _, result = node.check("--only", "efa-loopback")

    part = result["parts"]["efa-loopback"]
    assert part["outcome"] == "passed", part
    assert part["measured"] == {"efa_loopback_mb_per_s": 500.0, "efa_loopback_us": 20.5}
    assert part["facts"] == {
        "rdmap0s29": "2122.41 MB/s, 20.5 us", "rdmap0s30": "500 MB/s, 10.85 us",
    }  # fmt: skip
    assert "FI_EFA_ENABLE_SHM_TRANSFER=0" in part["command"]


BAD = "if device == 'rdmap0s30-rdm': "


@pytest.mark.parametrize(
    ("code", "rate", "why"),
    [
        ("", "'199.90' if device == 'rdmap0s30-rdm' else '200.00'", "is 199.9, expected"),
        (BAD + "print('Error at iteration=1 size=1048576 byte=64'); sys.exit(255)", "'2000.00'",
         "data corrupted"),
        (BAD + "sys.exit(61)", "'2000.00'", "libfabric finds no such provider or device"),
        (BAD + "sys.exit(0)", "'2000.00'", "no results in the output"),
    ],
)  # fmt: skip
def test_one_bad_device_among_good_ones_fails_the_node_and_is_named(node, code, rate, why) -> None:
    node.tool("fi_pingpong", pingpong(code=code, rate=rate))

    code, result = node.check("--only", "efa-loopback")

    part = result["parts"]["efa-loopback"]
    assert (code, part["outcome"]) == (1, "failed"), part
    [finding] = part["findings"]
    assert finding["device"] == "rdmap0s30"
    assert why in finding["message"]
    assert (finding["severity"], finding["remedy"]) == ("fatal", "reboot")


def test_a_tool_that_is_killed_blames_no_device(node) -> None:
    node.tool("fi_pingpong", pingpong(code=BAD + "os.kill(os.getpid(), 9)"))

    code, outcome, detail = node.part("efa-loopback")

    assert (code, outcome) == (0, "unknown")
    assert "rdmap0s30: terminated by signal 9" in detail


LACKS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENOSPC, errno.EACCES, 126)


@pytest.mark.parametrize("status", LACKS)
def test_a_tool_that_lacks_resources_blames_no_device(node, status) -> None:
    node.tool("fi_pingpong", pingpong(code=BAD + f"sys.exit({status})"))

    code, outcome, detail = node.part("efa-loopback")

    assert (code, outcome) == (0, "unknown")
    assert f"rdmap0s30: exited with {status}" in detail


def test_a_server_that_lacks_memory_blames_no_device(node) -> None:
    node.tool(
        "fi_pingpong", "'-B' in argv and 'rdmap0s30-rdm' in argv and sys.exit(12)\n" + pingpong()
    )

    assert node.part("efa-loopback")[:2] == (0, "unknown")


def test_a_tool_that_is_not_started_blames_no_device(node) -> None:
    node.tool("fi_pingpong", pingpong())
    fabrics = {
        name: Fabric(program=program, provider="efa", domain=f"{name}-rdm")
        for name, program in (("good", f"{node.bin}/fi_pingpong"), ("other", TOO_LONG))
    }

    result = _make(fabrics, Thresholds(), NOW)

    assert result.judgement.verdict is HealthState.UNKNOWN
    assert "other: not tested: cannot start" in result.judgement.undecided
    with pytest.raises(NotStarted):
        run_client([TOO_LONG])


def test_silence_of_all_devices_is_no_fault_of_the_node(node) -> None:
    node.tool("fi_pingpong", pingpong(code="sys.exit(61)"))

    code, outcome, detail = node.part("efa-loopback")

    assert (code, outcome) == (0, "unknown")
    assert "security group" in detail


def test_a_server_that_dies_is_heard(node) -> None:
    node.tool("fi_pingpong", "print('no memory is locked') if '-B' in argv else 0\nsys.exit(111)")

    code, outcome, detail = node.part("efa-loopback")

    assert (code, outcome) == (0, "unknown")
    assert "no memory is locked" in detail


def test_the_threshold_is_that_of_the_configuration(node) -> None:
    node.tool("fi_pingpong", pingpong())
    node.more = "[thresholds.default]\nefa_loopback_mb_per_s = 2500\n"
    assert node.part("efa-loopback")[1] == "failed"

    node.more = "[thresholds.default]\nefa_loopback_us = 10.84\n"
    assert node.part("efa-loopback")[1] == "failed"

    node.more = "[thresholds.default]\nefa_loopback_us = 10.85\nefa_loopback_mb_per_s = 0\n"
    assert node.part("efa-loopback")[1] == "passed"

    node.more = "[thresholds.default]\nefa_loopback_us = 0\n"
    assert node.part("efa-loopback")[1] == "passed"


def test_without_a_device_or_the_tool_it_is_skipped(tmp_path, capfd, node) -> None:
    assert node.part("efa-loopback")[1:] == (
        "skipped", "fi_pingpong not found: install it to run this check",
    )  # fmt: skip
    bare = CheckedNode(tmp_path / "bare", capfd.readouterr)
    assert bare.part("efa-loopback")[1:] == ("skipped", "no EFA device found")


def test_the_log_has_a_line_for_each_device(node) -> None:
    node.tool("fi_pingpong", pingpong(code=BAD + "sys.exit(61)"))
    log = node.folder / "log"

    node.check("--only", "efa-loopback", "--log", str(log))

    lines = log.read_text().splitlines()
    assert lines[0] == (
        "EFA Loopback check passed for device: rdmap0s29 . Output summary is 2122.41 MB/s, 10.85 us"
    )
    assert lines[1].startswith("EFA Loopback check failed for device: rdmap0s30 . ")
    assert lines[2].startswith("efa-loopback check failed: rdmap0s30: ")


NCCOM = """\
       size(B)    count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)
    1073741824       268435456    fp32       41806          23.92          18.37
Avg bus bandwidth:      18.37GB/s
"""


@pytest.mark.parametrize(
    ("text", "status", "outcome"),
    [(NCCOM, 0, "passed"), (NCCOM.replace("18.37", "9.99"), 0, "failed"), (NCCOM, 1, "unknown"),
     ("1 errors found - test failed\n", 1, "unknown")],
)  # fmt: skip
def test_neuron_cores_talk_to_each_other(node, text, status, outcome) -> None:
    node.is_a("trn1.32xlarge")
    node.more = '[thresholds."trn1.32xlarge"]\nnccom_gb_per_s = 10\n'
    node.prints("nccom-test", text, status=status)

    _, result = node.check("--only", "nccom")

    part = result["parts"]["nccom"]
    assert part["outcome"] == outcome, part
    assert part["command"][1:3] == ["-r", "32"]
