import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.detectors.kernel_log import LONGEST_LINE, KernelLog, kernel_line

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
WORDS = "NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus."

PREFIXES = {
    "none": "",
    "raw record": "4,1234,5678901,-;",
    "raw record with caller": "4,1234,5678901,-,caller=T1234;",
    "raw record of a user": "12,1234,5678901,-;",
    "uptime": "[ 1234.567890] ",
    "uptime of a long day": "[12345678.567890] ",
    "uptime and caller": "[ 1234.567890][  T123] ",
    "local time": "[Sun Feb 23 16:24:18 2025] ",
    "local time in Japanese": "[日  2月 23 16:24:18 2025] ",
    "local time in German": "[Mi Mär 12 16:24:18 2025] ",
    "delta": "[  +0.000844] ",
    "uptime and delta": "[ 1234.567890 <    0.000844>] ",
    "priority": "<3>",
    "priority and uptime": "<3>[ 1234.567890] ",
    "decoded": "kern  :warn  : 2025-01-21T04:41:44,285060+00:00 ",
    "decoded with uptime": "kern  :err   : [ 1234.567890] ",
    "decoded of a user": "user  :notice: [ 1234.567890] ",
    "iso": "2025-01-21T04:41:44,285060+00:00 ",
    "syslog": "Jul 09 10:42:47 host kernel: ",
    "syslog and uptime": "Jul 09 10:42:47 host kernel: [ 1234.567890] ",
    "syslog with a blank day": "Jul  9 10:42:47 ip-10-1-2-3 kernel: ",
    "syslog without host": "Jul 09 10:42:47 kernel: ",
    "syslog with a fraction": "Jul 09 10:42:47.123456 host.example.org kernel: ",
    "syslog of an IPv6 host": "Jul 09 10:42:47 fe80::1 kernel: ",
    "syslog with a process id": "Jul 09 10:42:47 host kernel[0]: ",
    "syslog in French": "juil. 09 10:42:47 host kernel: ",
    "syslog in Japanese": " 7月 09 10:42:47 host kernel: ",
    "rfc 3339": "2025-07-09T10:42:47.123456+02:00 host kernel: ",
    "rfc 3339 in UTC": "2025-07-09T10:42:47Z host kernel: [ 1234.567890] ",
    "rfc 5424": "<4>1 2025-07-09T10:42:47.123456Z host kernel - - - ",
    "journal in full": "Wed 2024-07-31 23:14:18 UTC host kernel: ",
    "host alone": "host kernel: ",
    "kernel alone": "kernel: ",
    "indented": "               ",
    "colored": "\x1b[32m[  966.503025] \x1b[0m\x1b[33m",
    "padding after a crash": "\0" * 4000 + "Jul 09 10:42:47 host kernel: ",
    "byte order mark": "\ufeff[ 1234.567890] ",
}

OTHERS = {
    "syslog program": f"Jul 09 10:42:47 host sshd[1]: {WORDS}",
    "syslog program without a number": f"Jul 09 10:42:47 host sudo: {WORDS}",
    "program that says kernel": f"Jul 09 10:42:47 host sshd[1]: kernel: {WORDS}",
    "program that says host kernel": f"Jul 09 10:42:47 host sshd[1]: host kernel: {WORDS}",
    "syslog without tag": f"Jul 09 10:42:47 host {WORDS}",
    "rfc 3339 program": f"2025-07-09T10:42:47Z host sshd[1]: {WORDS}",
    "raw record of a service": f"30,1234,5678901,-;{WORDS}",
    "priority of a service": f"<30>{WORDS}",
    "decoded record of a service": f"daemon:info  : [ 1234.567890] {WORDS}",
    "decoded record of a service, iso": f"auth  :warn  : 2025-01-21T04:41:44,285060+00:00 {WORDS}",
}


def message(line: str) -> str | None:
    found = kernel_line(line, NOW)
    return None if found is None else found.message


def fed(*pieces: bytes, keywords: tuple[str, ...] = ("NVRM",)) -> list[tuple[int, str]]:
    log = KernelLog(keywords)
    records = [record for piece in pieces for record in log.feed(piece, NOW)]
    return [(record.line_number, record.message) for record in [*records, *log.close(NOW)]]


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_every_prefix_comes_off(prefix: str, end: str) -> None:
    assert message(prefix + WORDS + end) == WORDS


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_repeated_message_is_the_message(prefix: str) -> None:
    assert message(f"{prefix}message repeated 9 times: [ [ 12.345678] {WORDS}]") == WORDS


def test_only_the_bracket_of_the_repetition_comes_off() -> None:
    assert message("message repeated 2 times: [ segfault in libnccl.so.2[7f00+1000]]\n") == (
        "segfault in libnccl.so.2[7f00+1000]"
    )


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
def test_a_line_of_another_program_is_not_the_kernels(line: str) -> None:
    assert message(line) is None


@pytest.mark.parametrize(
    "line",
    [
        f"sshd[1]: {WORDS}",
        f"sshd: kernel: {WORDS}",
        f"the host kernel: {WORDS}",
        f"2025-07-09T10:42:47Z stderr F {WORDS}",
        f"2025-07-09T10:42:47Z host containerd: {WORDS}",
        f'"{WORDS}"',
    ],
)
def test_quoted_words_of_the_kernel_do_not_begin_a_message(line: str) -> None:
    found = message(line)

    assert found is not None
    assert not found.startswith("NVRM")


def test_messages_that_look_like_prefixes_stay() -> None:
    for line in (
        "[drm] Initialized",
        "pt_main_thread[25]: segfault at 0",
        "nvme nvme4: I/O tag 22",
    ):
        assert message(f"[   12.345678] {line}") == line


def test_escapes_of_raw_records_are_undone() -> None:
    assert message(r"4,1,2,-;a\x0ab \x5cx0a \xc3\xa4 \xff") == "a\nb \\x0a ä �"


def test_escapes_elsewhere_are_text() -> None:
    assert message(r"[ 1.000000] a\x0ab") == r"a\x0ab"


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("[Sun Feb 23 16:24:18 2025] x", datetime(2025, 2, 23, 16, 24, 18, tzinfo=UTC)),
        ("[日  2月 23 16:24:18 2025] x", datetime(2025, 2, 23, 16, 24, 18, tzinfo=UTC)),
        (
            "2025-01-21T04:41:44,285060+02:00 x",
            datetime(2025, 1, 21, 2, 41, 44, 285060, tzinfo=UTC),
        ),
        ("2025-01-21T04:41:44 host kernel: x", datetime(2025, 1, 21, 4, 41, 44, tzinfo=UTC)),
        ("Jul 09 10:42:47 host kernel: x", datetime(2025, 7, 9, 10, 42, 47, tzinfo=UTC)),
        ("7月  9 10:42:47 host kernel: x", datetime(2025, 7, 9, 10, 42, 47, tzinfo=UTC)),
        ("Jun 30 23:59:60 host kernel: x", datetime(2025, 6, 30, 23, 59, 59, tzinfo=UTC)),
        ("juil. 09 10:42:47 host kernel: x", None),
        ("[Mi Mär 12 16:24:18 2025] x", None),
        ("Jul 32 10:42:47 host kernel: x", None),
        ("2025-13-21T04:41:44 host kernel: x", None),
        ("[ 1234.567890] x", None),
        ("x", None),
    ],
)
def test_the_time_is_known_where_the_prefix_says_it(line: str, at: datetime | None) -> None:
    found = kernel_line(line, NOW)

    assert found is not None
    assert found.at == at


@pytest.mark.parametrize(
    ("now", "line", "year"),
    [
        (NOW, "Nov 20 11:59:59", 2025),
        (NOW, "Nov 21 12:00:00", 2025),  # another time zone, or a clock that is ahead
        (NOW, "Nov 21 12:00:01", 2024),
        (NOW, "Dec 31 23:59:59", 2024),
        (NOW, "Feb 29 10:00:00", 2024),
        (datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), "Dec 31 23:59:59", 2025),
        (datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC), "Jan  1 00:00:10", 2026),
        (datetime(1904, 2, 28, tzinfo=UTC), "Feb 29 10:00:00", 1896),
    ],
)
def test_a_syslog_time_is_of_the_nearest_year_before_now(
    now: datetime, line: str, year: int
) -> None:
    found = kernel_line(f"{line} host kernel: x", now)

    assert found is not None
    assert found.at is not None
    assert found.at.year == year


def test_a_time_without_zone_has_that_of_now() -> None:
    zone = timezone(timedelta(hours=-7))

    found = kernel_line("Jul 09 10:42:47 host kernel: x", NOW.astimezone(zone))

    assert found is not None
    assert found.at == datetime(2025, 7, 9, 17, 42, 47, tzinfo=UTC)


PIECES = st.sampled_from(
    [
        *PREFIXES.values(),
        *OTHERS.values(),
        *("message repeated 9 times: [ ", "]", "\\x0a", "\x1b", "\x1b[0m"),
        *("[", "<", ";", ",", " ", "kernel: ", "7月", "9", "\n"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=12), max_size=12).map("".join)


@given(TEXTS)
@example("\x1b\x1b[0m[0m[ 1.000000] x")
@example("message repeated 1 times: [ ]]")
@example(r"4,1,2,-;\x5cx0a")
@example("4,1,2,-;" * 2000)
def test_taking_prefixes_off_twice_is_the_same_as_once(text: str) -> None:
    once = message(text)

    assert once is None or message(once) == once


@given(st.lists(st.binary(max_size=200) | TEXTS.map(str.encode), max_size=8), st.data())
def test_records_do_not_depend_on_how_the_bytes_were_cut(chunks: list[bytes], data) -> None:
    whole = b"\n".join(chunks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))

    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert fed(*pieces) == fed(whole)


def test_binary_garbage_around_a_record_does_no_harm() -> None:
    garbage = bytes(range(256)) * 40

    assert fed(garbage + b"\n" + WORDS.encode() + b"\n" + garbage)[-1] == (
        garbage.count(b"\n") + 2,
        WORDS,
    )


def test_lines_without_a_keyword_are_left_out() -> None:
    assert fed(b"usb 1-1: new device\n" + WORDS.encode() + b"\nNVR\n") == [(2, WORDS)]


def test_any_of_several_keywords_is_enough_and_none_of_them_is_a_pattern() -> None:
    assert fed(b"axb\na.b\nEDAC x\n", keywords=("a.b", "EDAC")) == [(2, "a.b"), (3, "EDAC x")]


def test_a_last_line_without_newline_counts() -> None:
    assert fed(b"x\n" + WORDS.encode()) == [(2, WORDS)]


def test_unread_bytes_are_those_of_the_unfinished_line() -> None:
    log = KernelLog(("NVRM",))

    log.feed(b"x\nNVRM: ", NOW)
    log.feed(b"Xid", NOW)
    assert (log.unread, log.lines) == (9, 1)

    log.feed(b"\n", NOW)
    assert (log.unread, log.lines) == (0, 2)


def test_a_line_without_end_takes_little_memory_and_counts_as_one() -> None:
    log = KernelLog(("NVRM",))
    piece = b"x" * 100_000
    tracemalloc.start()
    for _ in range(100):
        log.feed(piece, NOW)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 1_000_000
    assert log.unread == 10_000_000
    assert [record.line_number for record in log.feed(f"\n{WORDS}\n".encode(), NOW)] == [2]


def test_only_the_start_of_a_long_line_is_looked_at() -> None:
    [(_, found)] = fed(b"NVRM: " + b"x" * 100_000 + b"\n")

    assert len(found) == LONGEST_LINE


@pytest.mark.parametrize("cuts", [(), (9000,)])
def test_a_keyword_behind_the_start_of_a_long_line_does_not_count(cuts: tuple[int, ...]) -> None:
    text = b"x" * LONGEST_LINE + f" {WORDS}\n{WORDS}\n".encode()

    pieces = [text[start:end] for start, end in zip((0, *cuts), (*cuts, None), strict=True)]

    assert fed(*pieces) == [(2, WORDS)]


def test_the_dictionary_of_a_raw_record_is_dropped() -> None:
    record = f"4,1,2,-;{WORDS}\n SUBSYSTEM=pci\n DEVICE=NVRM\n {WORDS}\n4,2,3,-;{WORDS}\n"

    assert fed(record.encode()) == [(1, WORDS), (5, WORDS)]


def test_the_dictionary_of_a_record_that_is_of_no_interest_is_dropped() -> None:
    quiet = "4,1,2,-;usb 1-1: new device\n"
    dictionary = f" SUBSYSTEM=usb\n DEVICE=c189:1\n {WORDS}\n"
    text = f"{WORDS}\n{quiet}{dictionary}{WORDS}\n{quiet}{dictionary} {WORDS}\nusb\n {WORDS}\n"

    for cut in range(len(text)):
        pieces = (text[:cut].encode(), text[cut:].encode())
        assert fed(*pieces) == [(1, WORDS), (6, WORDS), (13, WORDS)]


def test_an_indented_line_elsewhere_is_a_message() -> None:
    assert fed(f"[    1.000000] usb\n               {WORDS}\n".encode()) == [(2, WORDS)]


ATTACH = (
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: (PCI ID: 10de:2901) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
OLD_ATTACH = (
    "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1db4)",
    "NVRM: installed in this system has fallen off the bus and is not responding to commands.",
)
OLDER_ATTACH = (
    "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1db4)",
    "NVRM: installed in this system has fallen",
    "NVRM: off the bus and is not responding to commands.",
)


@pytest.mark.parametrize("prefix", ["", "Jul 09 10:42:47 host kernel: ", "[ 12.345678] "])
@pytest.mark.parametrize("record", [ATTACH, OLD_ATTACH, OLDER_ATTACH])
def test_a_record_that_syslog_cut_up_is_whole_again(prefix: str, record: tuple[str, ...]) -> None:
    lines = "".join(f"{prefix}{line}\n" for line in record)

    assert fed(lines.encode()) == [(len(record), "\n".join(record))]


def test_a_record_with_escaped_newlines_is_whole() -> None:
    assert fed(rf"4,1,2,-;{ATTACH[0]}\x0a{ATTACH[1]}\x0a{ATTACH[2]}".encode()) == [
        (1, "\n".join(ATTACH))
    ]


def test_a_record_whose_end_never_comes_is_not_lost() -> None:
    opening, rest, _ = ATTACH

    assert fed(f"{opening}\n{rest}\n{WORDS}\n".encode()) == [
        (3, f"{opening}\n{rest}"),
        (3, WORDS),
    ]
    assert fed(f"{opening}\n{opening}\n{WORDS}\n".encode()) == [
        (2, opening),
        (3, opening),
        (3, WORDS),
    ]


def test_an_end_without_a_start_is_a_record() -> None:
    assert fed(f"{ATTACH[2]}\n".encode()) == [(1, ATTACH[2])]
