import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.nodes.reasons import Author, our_reason, parse_annotations
from holdfast.model.health import Remedy
from holdfast.model.names import SlurmReason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from holdfast.testing.builders import a_record, a_remediation


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
def test_the_leading_token_asks(text: str, verb: Verb) -> None:
    word = parse_annotations(text)

    assert (word.author, word.verb, word.meant) == (Author.REQUEST, verb, "")


@pytest.mark.parametrize(
    ("text", "meant"),
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
def test_what_is_nearly_a_request_is_known_and_asks_for_nothing(text: str, meant: str) -> None:
    word = parse_annotations(text)

    assert (word.author, word.verb, word.meant) == (Author.OTHER, None, meant)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Action:Destroy", True),
        ("action: drain it", True),
        ("Action:Replace.", True),
        ("Action needed", False),
        ("see Action:Destroy", False),
        ("cabling", False),
    ],
)
def test_an_action_that_nobody_knows_is_told_from_a_note(text: str, asks: bool) -> None:
    assert (parse_annotations(text).author, parse_annotations(text).asks) == (Author.OTHER, asks)


@pytest.mark.parametrize(
    "text",
    [
        "Not responding",
        " : Not responding",  # since 24.11, of a node whose reason was taken off
        "Node unexpectedly rebooted",
        "gres/gpu count reported lower (0 < 8)",
        "Prolog error",
        "Epilog error",
    ],
)
def test_slurms_own_reasons_are_nobodys_hold(text: str) -> None:
    assert parse_annotations(text).author is Author.SLURM


@pytest.mark.parametrize("text", ["", " ", "none"])
def test_no_reason_is_nobodys(text: str) -> None:
    assert parse_annotations(text).author is Author.NOBODY


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.SCHEDULABLE}))
@pytest.mark.parametrize("remedy", Remedy)
@pytest.mark.parametrize("added", ["", " : Not responding", " : reboot issued : reboot complete"])
def test_our_own_reason_is_known_as_ours_whatever_slurm_adds(
    phase: Phase, remedy: Remedy, added: str
) -> None:
    record = a_record(phase, remediation=a_remediation(remedy=remedy))

    assert parse_annotations(our_reason(record) + added).author is Author.HOLDFAST


def test_our_reason_begins_with_what_is_done() -> None:
    replacing = a_record(Phase.REPLACING, remediation=a_remediation(remedy=Remedy.REPLACE))
    rebooting = a_record(Phase.DRAINING, remediation=a_remediation(remedy=Remedy.REBOOT))
    back = a_record(Phase.JOINING, remediation=a_remediation(remedy=Remedy.REPLACE))

    assert our_reason(replacing).startswith(f"{SlurmReason.REPLACE} {SlurmReason.OURS} ")
    assert our_reason(rebooting).startswith(f"{SlurmReason.REBOOT} {SlurmReason.OURS} ")
    assert our_reason(back).startswith(f"{SlurmReason.OURS} checking after ")
    checked = our_reason(a_record(Phase.CHECKING, remediation=None))
    assert checked == f"{SlurmReason.OURS} checking (deep health check InProgress)"
    under_repair = our_reason(a_record(Phase.CHECKING, remediation=a_remediation(reason="Xid")))
    assert under_repair == f"{SlurmReason.OURS} checking after Xid (deep health check InProgress)"


@given(st.text(max_size=40))
def test_any_text_is_somebodys_word(text: str) -> None:
    word = parse_annotations(text)

    assert (word.verb is not None) == (word.author is Author.REQUEST)
    assert word.text in text
    assert word.text or word.author is Author.NOBODY


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
    word = parse_annotations(text)

    assert (word.author, word.verb) == (Author.REQUEST, Verb.REBOOT)
