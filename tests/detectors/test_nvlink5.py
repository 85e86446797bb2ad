"""The sheet "XID 144-150 Decode" of NVIDIA's catalogue, in samples of every unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.detectors.nvlink5 import FIRST_NEW_DRIVER, Advice, decode

OLD, NEW = FIRST_NEW_DRIVER - 1, FIRST_NEW_DRIVER

IGNORE, RESET, AWAIT, NONE = Advice.IGNORE, Advice.RESET, Advice.AWAIT, Advice.NONE


def text(unit: str, severity: str, info: int, status: int) -> str:
    return f", pid=1, name=a, {unit} {severity} XC0 i0 Link 13 (0x{info:08x} 0x{status:08x} 0x1)"


def advice(code: int, line: str, driver: int | None = NEW) -> Advice:
    error = decode(code, line, driver)
    assert error is not None
    return error.advice


# code, unit, lowest bits before R575 and after, status, how the line calls it, what is advised
SHEET = [
    (144, "SAW_MVB", 0b0000100001, 0b0000001, 0x1, "Nonfatal", IGNORE),
    (144, "SAW_MVB", 0b0000100001, 0b0000001, 0x10, "Fatal", RESET),
    (145, "RLW_CTRL", 0b0001100010, 0b0000011, 0x80000000, "Nonfatal", IGNORE),
    (145, "RLW_REMAP", 0b0010000010, 0b0000100, 0x20, "Nonfatal", AWAIT),
    (145, "RLW_REMAP", 0b0010000010, 0b0000100, 0x40, "Fatal", RESET),
    (145, "RLW_RSPCOL", 0b0010100010, 0b0000101, 0x2, "Fatal", RESET),
    (145, "RLW_RXPIPE", 0b0011000010, 0b0000110, 0x1, "Nonfatal", IGNORE),
    (145, "RLW_RXPIPE", 0b0011000010, 0b0000110, 0x1, "Fatal", RESET),
    (145, "RLW_RXPIPE", 0b0011000010, 0b0000110, 0x8, "Nonfatal", IGNORE),
    (145, "RLW_SRC_TRACK", 0b0011100010, 0b0000111, 0x4, "Nonfatal", AWAIT),
    (145, "RLW_SRC_TRACK", 0b0011100010, 0b0000111, 0x20, "Fatal", RESET),
    (145, "RLW_TAGSTATE", 0b0100000010, 0b0001000, 0x10000, "Nonfatal", IGNORE),
    (145, "RLW_TAGSTATE", 0b0100000010, 0b0001000, 0x100000, "Fatal", RESET),
    (146, "TLW_CTRL", 0b0100100011, 0b0001001, 0x4, "Fatal", RESET),
    (146, "TLW_RX/TLW_RX_PIPE0", 0b0101000011, 0b0001010, 0x2, "Nonfatal", IGNORE),
    (146, "TLW_RX_PIPE1", 0b0101000011, 0b0001011, 0x4, "Fatal", RESET),
    (146, "TLW_TX", 0b0101100011, 0b0001100, 0x1, "Nonfatal", IGNORE),
    (146, "TLW_TX_PIPE1", 0b0101100011, 0b0001101, 0x4, "Fatal", RESET),
    (147, "TREX", 0b0110000100, 0b0001110, 0x1, "Nonfatal", IGNORE),
    (148, "NVLPW_CTRL/NVLPW", 0b0000000101, 0b0001111, 0x80000000, "Nonfatal", IGNORE),
    (149, "NETIR_INT", 0b0000000110, 0b0011000, 0x0, "Fatal", RESET),
    (149, "NETIR_BER_EVENT", 0b1000100110, 0b0010011, 0x3, "Nonfatal", IGNORE),
    (149, "NETIR_LINK_EVT", 0x02100000 | 0b0111000110, 0x02100000 | 0b0010001, 0, "Fatal", RESET),
    (149, "NETIR_LINK_DOWN", 0x02600000 | 0b0111000110, 0x02600000 | 0b0010001, 0, "Fatal", IGNORE),
    (149, "NETIR", 0b1001000110, 0b0010100, 0x7, "Fatal", RESET),
    (149, "NETIR_MFDE_EVENT", 0b1001000110, 0b0010100, 0x3, "Nonfatal", IGNORE),
    (150, "MSE_WATCHDOG", 0, 0, 0, "Fatal", RESET),
]


@pytest.mark.parametrize("row", SHEET)
def test_the_sheet_decides_in_the_layout_of_the_driver(row: tuple) -> None:
    code, unit, old, new, status, severity, wanted = row

    assert advice(code, text(unit, severity, old, status), OLD) is wanted
    assert advice(code, text(unit, severity, new, status), NEW) is wanted
    if old != new:
        assert advice(code, text(unit, severity, old, status), NEW) is NONE


@pytest.mark.parametrize("row", SHEET)
def test_without_the_version_of_the_driver_each_layout_is_understood(row: tuple) -> None:
    code, unit, old, new, status, severity, wanted = row

    assert advice(code, text(unit, severity, old, status), None) is wanted
    assert advice(code, text(unit, severity, new, status), None) is wanted


@pytest.mark.parametrize("row", SHEET)
def test_bits_that_the_sheet_leaves_open_do_not_matter(row: tuple) -> None:
    code, unit, _, new, status, severity, wanted = row

    assert advice(code, text(unit, severity, new | 0xFC0FFF00, status)) is wanted
    assert advice(code, text(unit, severity, new ^ 0x00800000, status)) is NONE


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (145, text("RLW_REMAP", "Nonfatal", 0b0000100, 0x400)),  # a status without a row
        (145, text("RLW_REMAP", "Nonfatal", 0b0000100, 0x3)),  # two at once
        (144, text("RLW_REMAP", "Nonfatal", 0b0000100, 0x1)),  # a unit of another code
        (145, text("RLW_RSPCOL", "Nonfatal", 0b0000100, 0x1)),  # the number of another unit
        (145, text("RLW_REMAP", "Fatal", 0b0000100, 0x100)),  # it contradicts the sheet
        (145, text("RLW_REMAP", "Nonfatal", 0b0000100, 0x40)),
        (149, text("NETIR_LINK_EVT", "Fatal", 0b0010001, 0x1)),
        (149, text("NETIR_LINK_EVT", "Fatal", 0x03F00000 | 0b0010001, 0)),
    ],
)
def test_what_the_sheet_does_not_cover_is_reported_to_be_so(code: int, line: str) -> None:
    assert advice(code, line) is NONE
    assert "sheet: no action listed" in str(decode(code, line, NEW))


def test_the_fields_are_shown() -> None:
    error = decode(149, ", NETIR  Fatal   XC0 i0 Link -1 (0x021425c6 0x00000000)", OLD)

    assert str(error) == (
        "NVLink 5: NETIR, fatal, no single link, information 0x021425c6, status 0x00000000; "
        "NVIDIA's decode sheet: reset the GPU"
    )


def test_a_process_cannot_name_itself_an_error() -> None:
    forged = text("MSE_WATCHDOG", "Fatal", 0, 0)
    true = text("SAW_MVB", "Nonfatal", 1, 1)

    assert advice(144, forged + true) is IGNORE


@pytest.mark.parametrize(
    "line", ["", ", RLW_REMAP Fatal", ", RLW_REMAP Odd XC0 i0 Link 1 (0x1 0x1)"]
)
def test_other_lines_are_not_decoded(line: str) -> None:
    assert decode(145, line, NEW) is None


@given(
    st.integers(140, 155),
    st.sampled_from([one[1] for one in SHEET]),
    st.sampled_from(["Fatal", "Nonfatal"]),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, OLD, NEW]),
)
def test_a_gpu_is_reset_only_for_what_the_driver_calls_fatal(
    code: int, unit: str, severity: str, info: int, status: int, driver: int | None
) -> None:
    found = advice(code, text(unit, severity, info, status), driver)

    assert found is not RESET or severity == "Fatal"
