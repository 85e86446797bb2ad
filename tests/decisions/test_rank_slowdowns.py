"""What slows the GPU and the CPU of a straggler down: only what the other ranks do not show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.rank_slowdowns import GpuClock, Quota, RankUse, slowdown_text

IDLE, APPLICATION, POWER_CAP, HW, SW_THERMAL, THERMAL, BRAKE = 1, 2, 4, 8, 0x20, 0x40, 0x80
LIMIT = 1980


def rank(gpu: int, *clocks: tuple[int, int], limit: int | None = LIMIT) -> RankUse:
    samples = tuple(GpuClock(mhz=mhz, reasons=reasons) for mhz, reasons in clocks)
    return RankUse(gpu=f"GPU {gpu}", limit_mhz=limit, clocks=samples)


USUAL = rank(1, (1755, POWER_CAP), (1770, POWER_CAP))


@pytest.mark.parametrize(
    ("slow", "others", "text"),
    [
        (rank(0, (1095, THERMAL | HW), (1095, THERMAL | HW)), [],
         "its GPU 0 runs at 1095 of 1980 MHz: HW thermal slowdown"),
        (rank(0, (1095, BRAKE | HW), (1095, SW_THERMAL)), [USUAL],
         "its GPU 0 runs at 1095 of 1980 MHz, those of the other ranks on its node at 1762 MHz: "
         "HW power brake slowdown in 1 of 2 samples, SW thermal slowdown in 1 of 2 samples"),
        (rank(0, (990, HW), limit=None), [],
         "its GPU 0 runs at 990 MHz: HW slowdown"),
        (rank(0, (1980, THERMAL)), [USUAL],
         "its GPU 0 runs at 1980 of 1980 MHz: HW thermal slowdown"),
        (rank(0, (1095, POWER_CAP)), [USUAL],
         "its GPU 0 runs at 1095 of 1980 MHz, those of the other ranks on its node at 1762 MHz: "
         "SW power cap"),
        (rank(0, (1200, APPLICATION)), [USUAL, rank(2, (1900, 0)), rank(3, (345, IDLE))],
         "its GPU 0 runs at 1200 of 1980 MHz, those of the other ranks on its node at 1831 MHz: "
         "application clocks setting"),
        (rank(0, (1200, 0)), [USUAL],
         "its GPU 0 runs at 1200 of 1980 MHz, those of the other ranks on its node at 1762 MHz"),
        # Nothing that is evidence: all clocks are limited alike, idle, another GPU, none.
        (rank(0, (1755, POWER_CAP)), [USUAL], ""),
        (rank(0, (1755, POWER_CAP)), [], ""),
        (rank(0, (1200, APPLICATION)), [], ""),
        (rank(0, (345, IDLE | POWER_CAP)), [USUAL], ""),
        (rank(0, (345, IDLE | THERMAL)), [USUAL], ""),
        (rank(0, (1095, 0)), [rank(0, (1980, 0))], ""),
        (rank(0, (1095, 0)), [rank(1, (1800, 0), limit=2100)], ""),
        (RankUse(), [USUAL], ""),
        (rank(0), [USUAL], ""),
    ],
)  # fmt: skip
def test_a_clock_is_stated_if_it_is_slowed_down_or_lower_than_those_of_others(
    slow: RankUse, others: list[RankUse], text: str
) -> None:
    assert slowdown_text(slow, others, []) == text


@pytest.mark.parametrize(
    ("wait", "others", "quotas", "text"),
    [
        (0.9, [], [(0.62, False), (0.1, True)],
         "its control group was throttled in 62% of periods"),
        (0.9, [], [(0.1, False), (0.62, True)],
         "a control group that it shares with other ranks was throttled in 62% of periods"),
        (None, [], [(0.04, False)], ""),
        (0.3, [0.02, 0.04, 0.9], [(0.04, False)],
         "its main thread waits for a CPU 30% of the time, those of the other ranks on its node "
         "4%"),
        (0.3, [], [], "its main thread waits for a CPU 30% of the time"),
        (0.3, [0.28], [], ""),
        (0.04, [], [], ""),
        (None, [0.0], [], ""),
    ],
)  # fmt: skip
def test_a_quota_is_stated_or_a_wait_for_a_cpu_that_others_do_not_have(
    wait: float | None, others: list[float], quotas: list[tuple[float, bool]], text: str
) -> None:
    found = [Quota(throttled=share, is_shared=shared) for share, shared in quotas]
    rest = [RankUse(cpu_wait=one) for one in others]

    assert slowdown_text(RankUse(cpu_wait=wait), rest, found) == text


clocks = st.builds(GpuClock, mhz=st.integers(0, 3000), reasons=st.integers(0, (1 << 64) - 1))
uses = st.builds(
    RankUse,
    gpu=st.sampled_from(["", "GPU 0", "GPU 1"]),
    limit_mhz=st.none() | st.integers(0, 3000),
    clocks=st.lists(clocks, max_size=4).map(tuple),
    cpu_wait=st.none() | st.floats(0, 1),
)
shares = st.builds(Quota, throttled=st.floats(0, 1), is_shared=st.booleans())


@given(uses, st.lists(uses, max_size=4), st.lists(shares, max_size=3))
def test_any_reading_has_a_text_of_one_line_and_an_idle_gpu_is_never_blamed(
    slow: RankUse, others: list[RankUse], quotas: list[Quota]
) -> None:
    text = slowdown_text(slow, others, quotas)

    assert text.isprintable()
    if all(one.reasons & IDLE for one in slow.clocks):
        assert " MHz" not in text


@given(uses, st.lists(shares, max_size=3))
def test_a_rank_like_all_others_has_no_lower_clock_and_no_longer_wait(
    slow: RankUse, quotas: list[Quota]
) -> None:
    text = slowdown_text(slow, [slow, slow], quotas)

    assert "those of the other ranks" not in text
    assert "waits for a CPU" not in text
