from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xid_lines import HYPERPOD_TESTS, NOTHING, OFF_BUS, XIDS

from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.gpu_xid import build
from holdfast.detectors.xid_codes import XID_CODES
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
DETECTORS = {profile: build(profile) for profile in Profile}


def found(*messages: str, profile: Profile = Profile.HYPERPOD) -> list[Finding]:
    lines = tuple(LogLine(message=message, observed_at=NOW) for message in messages)
    return DETECTORS[profile].detect(Readings(kernel_log=lines))


def judged(code: int, text: str = "x", profile: Profile = Profile.HYPERPOD) -> Finding:
    [finding] = found(f"NVRM: Xid (PCI:0000:b9:00): {code}, {text}", profile=profile)
    return finding


def action(to: str, text: str = "") -> Finding:
    return judged(154, f"{text}GPU recovery action changed from 0x0 (None) to {to} (Words)")


@pytest.mark.parametrize(("line", "code", "device", "remedy"), XIDS)
def test_every_form_of_an_xid_is_read(line: str, code: int, device: str, remedy: str) -> None:
    [finding] = found(line)

    assert (finding.family, finding.code, finding.device) == ("xid", code, device)
    assert finding.remedy == remedy
    assert finding.message.startswith(line)
    assert finding.observed_at == NOW


@pytest.mark.parametrize(("line", "device"), OFF_BUS)
def test_every_text_of_a_gpu_off_the_bus_is_an_xid_79(line: str, device: str) -> None:
    xid = judged(79)

    assert found(line) == [replace(xid, device=device, message=line)]


@pytest.mark.parametrize("line", NOTHING)
def test_other_lines_are_nothing(line: str) -> None:
    assert found(line) == []


def test_findings_come_in_the_order_of_the_log() -> None:
    lines = [line for line, *_ in XIDS]

    reported = [finding.message.partition(" [NVLink 5")[0] for finding in found(NOTHING[0], *lines)]
    assert reported == lines


@pytest.mark.parametrize(
    ("code", "remedy", "condition", "reason"),
    [
        (74, Remedy.REPLACE, Condition.NVIDIA_TERMINATE, Reason.XID_REPLACE),
        (73, Remedy.REBOOT, Condition.NVIDIA_REBOOT, Reason.XID_REBOOT),
        (71, Remedy.REBOOT, Condition.NVIDIA_REBOOT, Reason.XID_REBOOT),
    ],
)
def test_the_public_test_of_hyperpod_has_its_effect(
    code: int, remedy: Remedy, condition: Condition, reason: Reason
) -> None:
    [finding] = found(HYPERPOD_TESTS[code])

    assert (finding.remedy, finding.condition, finding.reason) == (remedy, condition, reason)
    assert finding.severity is Severity.FATAL
    assert finding.urgency is Urgency.IMMEDIATE


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("code", [8, 11, 13, 25, 31, 32, 39, 43, 60, 68, 69, 80, 82, 126, 139])
def test_errors_of_an_application_do_not_touch_the_node(code: int, profile: Profile) -> None:
    finding = judged(code, profile=profile)

    assert finding.remedy is Remedy.NONE
    assert finding.reason == Reason.XID_USER_APP
    assert finding.condition == Condition.SOFTWARE
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("code", [0, 1, 54, 78, 142, 159, 165, 173, 174, 176, 177, 500, 999_999])
def test_codes_that_nobody_explains_alert_and_keep_the_node(code: int) -> None:
    finding = judged(code)

    assert finding.remedy is Remedy.NONE
    assert finding.reason == Reason.XID_UNKNOWN
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("code", [46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158])
@pytest.mark.parametrize("profile", Profile)
def test_what_the_catalogue_resets_is_reset(code: int, profile: Profile) -> None:
    finding = judged(code, profile=profile)

    assert (finding.remedy, finding.reason) == (Remedy.RESET_GPU, Reason.XID_RESET)
    assert finding.condition == Condition.NVIDIA_REBOOT
    assert finding.severity is Severity.FATAL


@pytest.mark.parametrize(
    ("code", "hyperpod", "nvidia"),
    [
        (64, Remedy.REPLACE, Remedy.RESET_GPU),
        (71, Remedy.REBOOT, Remedy.NONE),
        (73, Remedy.REBOOT, Remedy.NONE),
        (74, Remedy.REPLACE, Remedy.RESET_GPU),
        (79, Remedy.REPLACE, Remedy.REBOOT),
        (151, Remedy.REBOOT, Remedy.REBOOT),
        (167, Remedy.REBOOT, Remedy.NONE),
        (172, Remedy.REBOOT, Remedy.NONE),
    ],
)
def test_the_profile_decides_where_vendors_disagree(
    code: int, hyperpod: Remedy, nvidia: Remedy
) -> None:
    assert judged(code, profile=Profile.HYPERPOD).remedy is hyperpod
    assert judged(code, profile=Profile.NVIDIA).remedy is nvidia


def test_a_gpu_off_the_bus_follows_the_profile_without_its_xid() -> None:
    line, _ = OFF_BUS[0]

    assert found(line, profile=Profile.NVIDIA)[0].remedy is Remedy.REBOOT


def test_a_contained_memory_error_restarts_the_application_only() -> None:
    finding = judged(94, "Contained: SM (0x1). RST: Yes, D-RST: No")

    assert (finding.remedy, finding.reason) == (Remedy.RESTART_APP, Reason.XID_RESTART_APP)
    assert finding.severity is Severity.WARNING


def test_a_row_to_remap_waits_for_the_job_to_end() -> None:
    finding = judged(63)

    assert (finding.remedy, finding.urgency) == (Remedy.REBOOT, Urgency.DEFERRED)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("code", "severity"), [(163, Severity.WARNING), (162, Severity.INFO), (164, Severity.INFO)]
)
def test_power_smoothing_is_worth_a_notice(code: int, severity: Severity) -> None:
    finding = judged(code)

    assert (finding.remedy, finding.reason) == (Remedy.NONE, Reason.XID_WARNING)
    assert finding.severity is severity


def test_an_xid_45_is_an_echo() -> None:
    finding = judged(45, "pid=1, name=python3, Ch 00000001")

    assert (finding.remedy, finding.reason) == (Remedy.NONE, Reason.XID_ECHO)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize("code", [13, 31, 45, 69, 79, 94, 95, 145, 154, 999])
@pytest.mark.parametrize("end", ["", ".", "\n"])
def test_what_a_previous_xid_caused_is_an_echo_and_names_it(code: int, end: str) -> None:
    finding = judged(code, f"pid=7, name=a b, Ch 00000001 caused by previous Xid 149{end}")

    assert (finding.remedy, finding.reason) == (Remedy.NONE, Reason.XID_ECHO)
    assert finding.code == code
    assert "Xid 149" in finding.message


def test_a_process_cannot_name_itself_an_echo() -> None:
    finding = judged(95, "pid=7, name= caused by previous Xid 13, Uncontained: LTC TAG (0x2, 0x1)")

    assert finding.remedy is Remedy.RESET_GPU


@pytest.mark.parametrize("code", range(144, 151))
def test_an_nvlink_error_is_as_bad_as_its_line_says(code: int) -> None:
    words = "pid=1, name=my Fatal app, {} XC0 i0 Link 13 (0x0409a0c2 0x8)"

    for unit in (
        "SAW_MVB",
        "RLW_RXPIPE",
        "TLW_CTRL",
        "TREX",
        "NVLPW_CTRL",
        "NETIR",
        "MSE_WATCHDOG",
    ):
        assert judged(code, words.format(f"{unit} Fatal")).remedy is Remedy.RESET_GPU
        assert judged(code, words.format(f"{unit}   Fatal  ")).remedy is Remedy.RESET_GPU
        quiet = judged(code, words.format(f"{unit} Nonfatal"))
        assert (quiet.remedy, quiet.reason) == (Remedy.NONE, Reason.XID_WARNING)
    assert judged(code, "MSE Degraded").remedy is Remedy.NONE


@pytest.mark.parametrize(
    ("to", "remedy", "urgency"),
    [
        ("0x0", Remedy.NONE, Urgency.IMMEDIATE),
        ("0x1", Remedy.RESET_GPU, Urgency.IMMEDIATE),
        ("0x2", Remedy.REBOOT, Urgency.IMMEDIATE),
        ("0x3", Remedy.RESET_GPU, Urgency.DEFERRED),
        ("0x4", Remedy.RESET_GPU, Urgency.DEFERRED),
        ("0x5", Remedy.NONE, Urgency.IMMEDIATE),
        ("0x6", Remedy.REBOOT, Urgency.IMMEDIATE),
        ("0x7", Remedy.REBOOT, Urgency.IMMEDIATE),
        ("0x00000002", Remedy.REBOOT, Urgency.IMMEDIATE),
    ],
)
def test_the_driver_says_which_repair_it_wants(to: str, remedy: Remedy, urgency: Urgency) -> None:
    finding = action(to)

    assert (finding.remedy, finding.urgency) == (remedy, urgency)
    assert finding.reason == Reason.XID_RECOVERY_ACTION


def test_all_recovery_actions_of_a_gpu_speak_of_one_fault() -> None:
    assert len({action(f"0x{number}").key for number in range(8)}) == 1


@pytest.mark.parametrize("to", ["0x8", "0xff"])
def test_an_unknown_recovery_action_alerts_and_takes_nothing_back(to: str) -> None:
    finding = action(to)

    assert (finding.remedy, finding.reason) == (Remedy.NONE, Reason.XID_UNKNOWN)
    assert finding.key != action("0x1").key


def test_a_recovery_action_without_its_words_alerts() -> None:
    assert judged(154, "something else").reason == Reason.XID_UNKNOWN


def test_a_process_cannot_name_the_recovery_action() -> None:
    name = "pid=1, name=GPU recovery action changed from 0x0 (None) to 0x0 (None), "

    assert action("0x2", name).remedy is Remedy.REBOOT


def test_a_process_cannot_name_the_code() -> None:
    finding = judged(31, "pid=1, name=79, NVRM: Xid (PCI:0000:c0:00): 74, 64, Ch 00000008")

    assert (finding.code, finding.device) == (31, "PCI:0000:b9:00")


@pytest.mark.parametrize("code", [790, 7, 9, 179])
def test_a_code_is_not_a_part_of_a_number(code: int) -> None:
    finding = judged(code)

    assert finding.code == code
    assert finding.remedy is Remedy.NONE


def test_the_names_of_all_codes_are_given_to_people() -> None:
    detector = DETECTORS[Profile.HYPERPOD]

    assert detector.codes == {code: row.name for code, row in XID_CODES.items()}


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    found(text, f"NVRM: Xid {text}", f"NVRM: Xid (PCI:0000:b9:00): {text}", f"NVRM: GPU {text}")


@given(st.sampled_from([*range(180), 999]), st.text(), st.sampled_from(Profile))
def test_every_code_with_any_text_is_one_finding(code: int, text: str, profile: Profile) -> None:
    finding = judged(code, text, profile)

    assert (finding.family, finding.code, finding.device) == ("xid", code, "PCI:0000:b9:00")
    assert (finding.severity is Severity.FATAL) <= finding.remedy.touches_node


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("remedy", Remedy)
@pytest.mark.parametrize("code", [13, 45, 74, 79, 94, *range(144, 151), 154, 5000])
def test_a_code_can_be_given_another_remedy(code: int, remedy: Remedy, profile: Profile) -> None:
    lines = tuple(
        LogLine(message=f"NVRM: Xid (PCI:0000:b9:00): {number}, x", observed_at=NOW)
        for number in (code, 48)
    )

    one, other = build(profile, {code: remedy}).detect(Readings(kernel_log=lines))

    assert one.remedy is remedy
    assert other == judged(48, profile=profile)


@pytest.mark.parametrize("remedy", Remedy)
def test_an_nvlink_error_with_another_remedy_is_still_explained(remedy: Remedy) -> None:
    text = "RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 0x00000004 0x1 0x0 0x0 0x0)"
    line = LogLine(message=f"NVRM: Xid (PCI:0000:b9:00): 145, pid=1, {text}", observed_at=NOW)

    [finding] = build(Profile.HYPERPOD, {145: remedy}).detect(Readings(kernel_log=(line,)))

    assert finding.remedy is remedy
    assert "NVIDIA's decode sheet" in finding.message


def test_another_remedy_for_79_holds_for_all_its_texts() -> None:
    detector = build(Profile.HYPERPOD, {79: Remedy.REBOOT})
    lines = tuple(LogLine(message=line, observed_at=NOW) for line, _ in OFF_BUS)

    findings = detector.detect(Readings(kernel_log=lines))

    assert {finding.remedy for finding in findings} == {Remedy.REBOOT}


def test_an_echo_stays_an_echo_whatever_remedy_its_code_has() -> None:
    text = "pid=1, name=python3, Ch 00000001 caused by previous Xid 149"
    line = LogLine(message=f"NVRM: Xid (PCI:0000:b9:00): 45, {text}", observed_at=NOW)

    [finding] = build(Profile.HYPERPOD, {45: Remedy.REPLACE}).detect(Readings(kernel_log=(line,)))

    assert finding.remedy is Remedy.NONE
