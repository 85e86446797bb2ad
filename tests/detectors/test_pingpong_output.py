"""What fi_pingpong and nccom-test write, healthy, faulty and broken off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.judgement import HealthState
from holdfast.detectors.nccom import judge_nccom, nccom_bandwidth
from holdfast.detectors.pingpong import Exchange, read_pingpong

TABLE = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      100     =100     12k         0.02s      0.06    1123.55       0.00
256     100     =100     50k         0.00s     23.60      10.85       0.09
1k      100     =100     200k        0.00s     93.09      11.00       0.09
4k      100     =100     800k        0.00s    305.67      13.40       0.07
64k     100     =100     12m         0.00s   1440.35      45.50       0.02
1m      100     =100     200m        0.01s   2122.41     494.05       0.00
"""
CHANGED = "Error at iteration=1 size=1048576 byte=64\n"


def test_the_largest_size_gives_the_rate_and_the_best_small_one_the_time() -> None:
    assert read_pingpong(TABLE, "", 0) == Exchange(mb_per_s=2122.41, us=10.85)


@pytest.mark.parametrize(
    ("stdout", "stderr", "status", "fault", "doubt"),
    [
        (CHANGED, "", 255, "data corrupted: Error at iteration=1", ""),
        (TABLE.replace("1m      100     =100", "1m      100     97"), "", 0,
         "97 of 100 messages of 1m bytes returned", ""),
        (TABLE.replace("1m      100     =100", "1m      100     100"), "", 0, "", ""),
        ("", "[error] util/pingpong.c:408 : failed to connect: Connection refused\n", 111,
         "", "exited with 111: [error] util/pingpong.c:408 : failed to connect"),
        ("", "fi_getinfo(): util/pingpong.c:1583, ret=-61 (No data available)\n", 61,
         "", "libfabric finds no such provider or device"),
        ("", "ctrl/read: no data or remote connection closed\n", 103,
         "", "exited with 103: ctrl/read"),
        (TABLE, "", 3, "", "exited with 3"),
        (TABLE, "", -9, "", "terminated by signal 9"),
        (TABLE.splitlines()[0], "", 0, "", "no results in the output"),
        ("", "", 0, "", "no results in the output"),
        ("ok\n", "", 0, "", "no results in the output"),
        (TABLE.rpartition("1m ")[0], "", 0, "", "its results are cut off"),
        (TABLE[:-10], "", 0, "", "its results are cut off"),
        (TABLE.replace("2122.41", "inf"), "", 0, "", "its results are cut off"),
        ("", "", 1, "", "exited with 1: no output"),
        ("", "fi_endpoint(): ret=-12 (Cannot allocate memory)\n", 12, "", "exited with 12: fi_e"),
    ],
)  # fmt: skip
def test_what_says_too_little_is_no_fault_and_what_is_wrong_is_one(
    stdout, stderr, status, fault, doubt
) -> None:
    said = read_pingpong(stdout, stderr, status)

    assert said.fault.startswith(fault)
    assert said.doubt.startswith(doubt)
    assert (bool(said.fault), bool(said.doubt)) == (bool(fault), bool(doubt))
    assert (said.mb_per_s is None) == bool(fault or doubt)
    assert said.is_of_host == (status in (-9, 12))


@given(st.text(), st.text(), st.integers(-64, 255))
def test_no_output_makes_it_raise(stdout, stderr, status) -> None:
    said = read_pingpong(stdout, stderr, status)

    assert said.fault or said.doubt or said.mb_per_s is not None


NCCOM = """\
       size(B)    count(elems)    type    time(us)    algbw(GB/s)    busbw(GB/s)
     536870912       134217728    fp32       21803          22.93          45.15
    1073741824       268435456    fp32       41806          23.92          47.09
Avg bus bandwidth:      9.3924GB/s
"""


@pytest.mark.parametrize(
    ("text", "verdict", "why", "bandwidth"),
    [
        (NCCOM, HealthState.HEALTHY, "", 47.09),
        (NCCOM.replace("1073741824", "1073741823"), HealthState.UNKNOWN, "no message had", None),
        (
            NCCOM.rpartition("Avg")[0],
            HealthState.UNKNOWN,
            "the output of the test is cut off",
            47.09,
        ),
        ("", HealthState.UNKNOWN, "no results in the output", None),
        ("    33554432    Failure running neuron-bench - log file /tmp/x.log\n"
         "1 errors found - test failed\n", HealthState.UNKNOWN,
         "Failure running neuron-bench", None),
        ("Neuron DKMS Driver is not running! Read the guide\n", HealthState.UNKNOWN,
         "Neuron DKMS Driver is not running", None),
    ],
)  # fmt: skip
def test_nccom_is_judged_at_its_largest_size_and_not_punished_for_its_errors(
    text, verdict, why, bandwidth
) -> None:
    judgement = judge_nccom(text)

    assert judgement.verdict is verdict
    assert why in judgement.undecided
    assert nccom_bandwidth(text) == bandwidth


def test_nccom_at_a_larger_size_is_that_of_the_larger_whatever_the_order() -> None:
    head, first, second, tail = NCCOM.splitlines(keepends=True)

    assert nccom_bandwidth(head + second + first + tail) == 47.09


@given(st.text())
def test_no_text_of_nccom_makes_it_raise(text) -> None:
    assert judge_nccom(text).undecided
