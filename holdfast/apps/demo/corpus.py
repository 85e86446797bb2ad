"""Training text that every machine has: the source of Python's own standard library."""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from holdfast.model.errors import ConfigError

SYMBOLS = 96
"""Size of the vocabulary: the line feed and the 95 printable characters of ASCII."""

CONTEXT = 16
"""Number of characters from which the next one is predicted."""

TEXT_LIMIT = 1_000_000
"""Maximum number of characters. A run of the demo draws about half as many windows from them."""

HELD_OUT_SHARE = 16
"""Divisor: one part of this many, at the end of the text, is never trained on."""

HELD_OUT_WINDOWS = 2048
"""With a standard deviation of about 2 nats, the mean over so many is within 0.05 nats."""

Symbols = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of text, with their targets."""

    contexts: NDArray[np.int64]
    """Symbols, shape (windows, ``CONTEXT``)."""

    targets: NDArray[np.int64]
    """The symbol after each context, shape (windows,)."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text as symbols from 0 to ``SYMBOLS`` - 1."""

    training: Symbols
    held_out: Symbols
    digest: str
    """SHA-256 of the whole text, which differs between releases of Python."""

    def batch(self, *, seed: int, step: int, size: int, rank: int, world_size: int) -> Batch:
        """Return the share of ``rank`` in the batch of ``size`` windows that all ranks train on.

        The batch does not depend on ``world_size``, and all shares together are the batch.
        """
        draw = np.random.default_rng((seed, step))
        starts = draw.integers(len(self.training) - CONTEXT, size=size)
        return _windows(self.training, starts[rank::world_size])

    def held_out_batch(self) -> Batch:
        """Return the same ``HELD_OUT_WINDOWS`` evenly spaced windows of held-out text each time."""
        starts = np.linspace(0, len(self.held_out) - CONTEXT - 1, HELD_OUT_WINDOWS).astype(np.int64)
        return _windows(self.held_out, starts)


def standard_library() -> Corpus:
    """Return the public top-level modules of this Python's standard library.

    Raises:
        ConfigError: this Python has no source files.

    """
    return modules_in(Path(sysconfig.get_path("stdlib")))


def modules_in(directory: Path) -> Corpus:
    """Return the modules directly in ``directory``, in the order of their names.

    Names that begin with an underscore are left out: some of these modules record how this
    Python was built.

    Raises:
        ConfigError: they hold too little text.

    """
    text = b""
    for path in sorted(directory.glob("[a-z]*.py")):
        text += path.read_bytes()
        if len(text) >= TEXT_LIMIT:
            break
    try:
        return corpus_of(text[:TEXT_LIMIT])
    except ValueError as error:
        raise ConfigError(f"no Python sources to train on in {directory}: {error}") from error


def corpus_of(text: bytes) -> Corpus:
    """Return the corpus of a text; characters outside the vocabulary are left out.

    Raises:
        ValueError: the text is too short to take windows from both parts.

    """
    codes = np.frombuffer(text, dtype=np.uint8)
    printable = (codes >= ord(" ")) & (codes <= ord("~"))
    usable = codes[printable | (codes == ord("\n"))]
    symbols = np.where(usable == ord("\n"), ord(" ") - 1, usable).astype(np.uint8) - (ord(" ") - 1)
    cut = len(symbols) - len(symbols) // HELD_OUT_SHARE
    if len(symbols) - cut <= CONTEXT:
        shortest = HELD_OUT_SHARE * (CONTEXT + 1)
        raise ValueError(f"{len(symbols)} usable characters; {shortest} are required")
    return Corpus(symbols[:cut], symbols[cut:], hashlib.sha256(usable.tobytes()).hexdigest())


def _windows(symbols: Symbols, starts: NDArray[np.int64]) -> Batch:
    windows = sliding_window_view(symbols, CONTEXT + 1)[starts].astype(np.int64)
    return Batch(contexts=windows[:, :CONTEXT], targets=windows[:, CONTEXT])
