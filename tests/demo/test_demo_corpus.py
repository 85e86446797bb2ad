import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.apps.demo.corpus import (
    CONTEXT,
    HELD_OUT_SHARE,
    HELD_OUT_WINDOWS,
    SYMBOLS,
    TEXT_LIMIT,
    corpus_of,
    modules_in,
    standard_library,
)
from holdfast.model.errors import ConfigError

SHORTEST = HELD_OUT_SHARE * (CONTEXT + 1)
TEXT = bytes(range(32, 127)) * 20
CORPUS = corpus_of(TEXT)

steps = st.integers(0, 10**9)
seeds = st.sampled_from([0, 1, 2**63 - 1])


def test_the_standard_library_is_the_same_text_every_time_and_bounded():
    first, second = standard_library(), standard_library()

    assert first.digest == second.digest
    assert np.array_equal(first.training, second.training)
    assert TEXT_LIMIT * 0.9 < len(first.training) + len(first.held_out) <= TEXT_LIMIT


@pytest.mark.parametrize("names", [["b", "a", "c"], ["c", "a", "b"], ["a", "b", "c"]])
def test_modules_are_read_in_the_order_of_their_names_without_private_ones(tmp_path, names):
    for name in names:
        (tmp_path / f"{name}.py").write_bytes(name.encode() * SHORTEST)
    (tmp_path / "_build.py").write_text("differs between machines")
    (tmp_path / "a.txt").write_text("no module")
    expected = corpus_of(b"a" * SHORTEST + b"b" * SHORTEST + b"c" * SHORTEST)

    assert modules_in(tmp_path).digest == expected.digest


def test_a_python_without_sources_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no Python sources to train on in .*: 0 usable"):
        modules_in(tmp_path)


@given(st.binary(min_size=SHORTEST * 4, max_size=SHORTEST * 6))
def test_symbols_are_within_the_vocabulary_whatever_the_text(text):
    try:
        corpus = corpus_of(text)
    except ValueError:
        return

    symbols = np.concatenate([corpus.training, corpus.held_out])
    kept = bytes(byte for byte in text if byte == 10 or 32 <= byte <= 126)
    assert bytes(10 if symbol == 0 else symbol + 31 for symbol in symbols.tolist()) == kept
    assert symbols.max() < SYMBOLS


def test_a_text_that_is_too_short_is_refused_one_that_is_just_long_enough_is_not():
    with pytest.raises(ValueError, match=f"{SHORTEST - 1} usable characters; {SHORTEST} are"):
        corpus_of(b"x" * (SHORTEST - 1) + "ü".encode())
    corpus = corpus_of(b"x" * SHORTEST)

    assert corpus.held_out_batch().contexts.shape == (HELD_OUT_WINDOWS, CONTEXT)
    assert corpus.batch(seed=0, step=0, size=1000, rank=0, world_size=1).targets.shape == (1000,)


def test_another_text_has_another_digest():
    assert corpus_of(TEXT).digest != corpus_of(TEXT + b"x").digest


@given(seeds, steps, st.integers(1, 40), st.integers(1, 9))
def test_the_shares_of_all_ranks_together_are_the_batch(seed, step, size, world_size):
    whole = CORPUS.batch(seed=seed, step=step, size=size, rank=0, world_size=1)
    shares = [
        CORPUS.batch(seed=seed, step=step, size=size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]

    for rank, share in enumerate(shares):
        assert np.array_equal(share.contexts, whole.contexts[rank::world_size])
        assert np.array_equal(share.targets, whole.targets[rank::world_size])


def test_batches_differ_by_step_and_by_seed():
    def contexts(seed, step):
        return CORPUS.batch(seed=seed, step=step, size=32, rank=0, world_size=1).contexts.tobytes()

    assert len({contexts(0, 0), contexts(0, 1), contexts(1, 0), contexts(1, 1)}) == 4


@given(seeds, steps)
def test_the_target_is_the_character_after_its_context(seed, step):
    batch = CORPUS.batch(seed=seed, step=step, size=8, rank=0, world_size=1)
    text = CORPUS.training.tobytes()

    for context, target in zip(batch.contexts, batch.targets, strict=True):
        assert bytes(context.tolist()) + bytes([target]) in text


def test_the_last_characters_are_held_out():
    text = np.concatenate([CORPUS.training, CORPUS.held_out])

    assert len(CORPUS.held_out) == len(text) // HELD_OUT_SHARE
    assert CORPUS.held_out_batch().targets[-1] == text[-1]
    assert np.array_equal(CORPUS.held_out_batch().contexts[0], CORPUS.held_out[:CONTEXT])
