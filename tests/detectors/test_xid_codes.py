import pytest

from holdfast.detectors.xid_codes import XID_CODES, CodeAction


def test_every_published_code_has_its_row() -> None:
    assert list(XID_CODES) == list(range(1, 177))


def test_names_are_a_few_words() -> None:
    assert [row for row in XID_CODES.values() if not 3 <= len(row.name) <= 48] == []


def test_hyperpod_and_nvidia_disagree_on_these_codes_only() -> None:
    disputed = {code for code, row in XID_CODES.items() if row.hyperpod is not row.nvidia}

    assert disputed == {64, 71, 73, 74, 79, 167, 168, 169, 171, 172}


@pytest.mark.parametrize(
    ("action", "codes"),
    [
        (CodeAction.REPLACE, {64, 74, 79}),
        (CodeAction.REBOOT, {71, 73, 151, 167, 168, 169, 171, 172}),
        (CodeAction.REBOOT_WHEN_IDLE, {63}),
        (CodeAction.RESTART_APP, {94}),
        (CodeAction.ECHO, {45}),
        (CodeAction.LINK, set(range(144, 151))),
        (CodeAction.ACTION, {154}),
        (CodeAction.NOTE, {106, 107, 162, 164}),
        (
            CodeAction.RESET,
            {46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158},
        ),
    ],
)
def test_these_codes_and_no_others_have_a_consequence(action: CodeAction, codes: set[int]) -> None:
    assert {code for code, row in XID_CODES.items() if row.hyperpod is action} == codes
