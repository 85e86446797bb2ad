"""Nothing that a provider's command prints steers a terminal, forges a log line or fills a log."""

from datetime import timedelta
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.providers.command import EX_NOHOST, EX_TEMPFAIL
from holdfast.adapters.providers.settings import CommandSettings, ProviderConfig, ProviderName
from holdfast.adapters.providers.table import build_provider
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import Phase
from tests.ports.builders import a_node
from tests.ports.fakes import FakeClock

NODE = a_node(Phase.REPLACING, provider_id="rack-3/7")
STATUSES = (0, 1, 2, EX_NOHOST, 70, EX_TEMPFAIL, 126, 127, 255)
TOKENS = (
    b"\x1b[2J", b"\x1b]0;title\x07", b"\r", b"\n2026-11-23T00:00:00Z NodeReleased: node1\n", b"\0",
    b"\xff\xfe", b"\xc3", "\u2028\u202e".encode(), b"a" * 70_000, b"\n" * 5000,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(STATUSES), st.lists(st.sampled_from(TOKENS) | st.binary(max_size=9)))
def test_an_order_ends_as_its_exit_code_says_whatever_the_command_prints(
    tmp_path_factory: pytest.TempPathFactory, status: int, parts: list[bytes]
) -> None:
    text = tmp_path_factory.mktemp("printed") / "text"
    text.write_bytes(b"".join(parts))
    failure = ordered(text, status)

    assert type(failure) is {
        0: type(None), EX_NOHOST: NodeGone, EX_TEMPFAIL: RetryLater,
    }.get(status, ProviderError)  # fmt: skip
    assert len(str(failure)) < 1000
    assert str(failure).isprintable()
    if isinstance(failure, RetryLater):
        assert timedelta(0) < failure.after <= timedelta(hours=1)
        assert not failure.is_outcome_unknown


def ordered(text: Path, status: int) -> ProviderError | None:
    """Replace a node by a command that prints a file on both outputs; returns its failure."""
    argv = ("/bin/sh", "-c", f'cat "$0"; cat "$0" >&2; exit {status}', str(text))
    command = CommandSettings(reboot=argv, replace=argv, timeout=timedelta(seconds=60))
    config = ProviderConfig(
        reboot=ProviderName.COMMAND, replace=ProviderName.COMMAND, command=command
    )
    try:
        build_provider(config, FakeClock()).replace(NODE, "token")
    except ProviderError as error:  # NodeGone and RetryLater, too
        return error
    return None
