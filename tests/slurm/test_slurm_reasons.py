import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.reasons import Author, our_reason, parse_reason
from holdfast.model.health import Remedy
from holdfast.model.names import SlurmReason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import a_record, a_remediation


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("Action:Replace", Verb.REPLACE),
        ("Action:Reboot", Verb.REBOOT),
        ("Action:Replace : Not responding", Verb.REPLACE),
        ("Action:Reboot : reboot issued : reboot timed out", Verb.REBOOT),
        ("Action:Reboot after the fan was loud", Verb.REBOOT),
    ],
)
def test_the_first_token_is_the_request(text: str, verb: Verb) -> None:
    reason = parse_reason(text)

    assert (reason.author, reason.verb, reason.suggestion) == (Author.REQUEST, verb, "")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("action:replace", SlurmReason.REPLACE),
        ("Action: Reboot", SlurmReason.REBOOT),
        ("Action:Replace.", SlurmReason.REPLACE),
        ("ACTION:REBOOT : Not responding", SlurmReason.REBOOT),
        ("Action Replace", SlurmReason.REPLACE),
        ("Action:Rebooting", SlurmReason.REBOOT),
        ("please do Action:Replace", ""),
        ("cabling", ""),
        ("NHC: check_hw failed", ""),
    ],
)
def test_text_close_to_a_request_is_suggested_and_not_acted_on(text: str, suggestion: str) -> None:
    reason = parse_reason(text)

    assert (reason.author, reason.verb, reason.suggestion) == (Author.OTHER, None, suggestion)


@pytest.mark.parametrize(
    ("text", "is_similar"),
    [
        ("Action:Destroy", True),
        ("action: drain it", True),
        ("Action:Replace.", True),
        ("Action needed", False),
        ("see Action:Destroy", False),
        ("cabling", False),
    ],
)
def test_an_unknown_action_is_distinguished_from_a_note(text: str, is_similar: bool) -> None:
    assert (parse_reason(text).author, parse_reason(text).resembles_request) == (
        Author.OTHER,
        is_similar,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Not responding",
        " : Not responding",  # since 24.11, of a node whose reason was taken off
        "Node unexpectedly rebooted",
        "gres/gpu count reported lower than configured (0 < 8)",
        "Low RealMemory",
        "Low RealMemory (reported:990 < 100.00% of configured:1000)",
        "Low socket*core*thread count, Low CPUs",
        "Low TmpDisk",
        "ResumeTimeout reached",
        "reboot issued : reboot timed out",
        "Prolog error : Not responding",
        "Prolog error",
        "Epilog error",
    ],
)
def test_slurms_own_reasons_are_recognized(text: str) -> None:
    assert parse_reason(text).author is Author.SLURM


@pytest.mark.parametrize(
    "text",
    [
        "Kill task failed again, keep for debugging",
        "Kill task failed : keep for debugging",
        "Duplicate jobid, see RMA 4711",
        "Not responding to IPMI, RMA 4711",
        "Node unexpectedly rebooted, being examined",
        "Low RealMemory since the last DIMM swap",
        "reboot after the fan is replaced",
        "Prolog error of a new script, do not resume",
    ],
)
def test_who_begins_a_reason_like_slurm_and_continues_it_is_a_person(text: str) -> None:
    assert (parse_reason(text).author, parse_reason(text).verb) == (Author.OTHER, None)


@pytest.mark.parametrize("text", ["", " ", "none"])
def test_an_empty_reason_has_no_author(text: str) -> None:
    assert parse_reason(text).author is Author.NONE


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.SCHEDULABLE}))
@pytest.mark.parametrize("remedy", Remedy)
@pytest.mark.parametrize("added", ["", " : Not responding", " : reboot issued : reboot complete"])
def test_our_reason_is_recognized_whatever_slurm_appends(
    phase: Phase, remedy: Remedy, added: str
) -> None:
    record = a_record(phase, remediation=a_remediation(remedy=remedy))

    assert parse_reason(our_reason(record) + added).author is Author.HOLDFAST


def test_our_reason_begins_with_the_repair() -> None:
    replacing = a_record(Phase.REPLACING, remediation=a_remediation(remedy=Remedy.REPLACE))
    rebooting = a_record(Phase.DRAINING, remediation=a_remediation(remedy=Remedy.REBOOT))
    back = a_record(Phase.JOINING, remediation=a_remediation(remedy=Remedy.REPLACE))

    assert our_reason(replacing).startswith(f"{SlurmReason.REPLACE} {SlurmReason.HOLDFAST} ")
    assert our_reason(rebooting).startswith(f"{SlurmReason.REBOOT} {SlurmReason.HOLDFAST} ")
    assert our_reason(back).startswith(f"{SlurmReason.HOLDFAST} checking after ")
    checked = our_reason(a_record(Phase.CHECKING, remediation=None))
    assert checked == f"{SlurmReason.HOLDFAST} checking (deep health check InProgress)"
    under_repair = our_reason(a_record(Phase.CHECKING, remediation=a_remediation(reason="Xid")))
    assert (
        under_repair == f"{SlurmReason.HOLDFAST} checking after Xid (deep health check InProgress)"
    )


@given(st.text(max_size=40))
def test_any_text_is_somebodys_reason(text: str) -> None:
    reason = parse_reason(text)

    assert (reason.verb is not None) == (reason.author is Author.REQUEST)
    assert reason.text in text
    assert reason.text or reason.author is Author.NONE


@pytest.mark.parametrize(
    "text",
    [
        "Kill task failed",
        "Kill task failed : Not responding",
        "Duplicate jobid",
        "batch job complete failure",
    ],
)
def test_what_slurm_drains_a_node_for_and_only_a_reboot_mends_asks_for_one(text) -> None:
    reason = parse_reason(text)

    assert (reason.author, reason.verb) == (Author.REQUEST, Verb.REBOOT)
