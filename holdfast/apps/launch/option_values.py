"""Parsers of values of ``holdfast launch``'s options; each raises ``ArgumentTypeError``."""

import argparse
import math
from datetime import timedelta

from holdfast.apps.launch.progress_watch import HangLimit
from holdfast.apps.launch.rendezvous import parse_nodes
from holdfast.decisions.exit_meanings import ExitMeaning, parse_exit_meanings
from holdfast.kit.units import parse_duration


def duration(text: str) -> timedelta:
    """Parse a duration; a plain number is seconds, as in torchrun."""
    try:
        return parse_duration(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def count(text: str, most: int = 999_999) -> int:
    """Parse a whole number up to ``most``."""
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number from 0 to {most}")
    return int(text)


def node_range(text: str) -> str:
    """Check a number or a range of nodes."""
    try:
        parse_nodes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def port(text: str) -> int:
    """Parse a TCP port."""
    number = count(text)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a TCP port")
    return number


def hang_limit(text: str) -> HangLimit:
    """Parse a timeout, or ``auto``; 0 is none."""
    if text == "auto":
        return HangLimit(restarts=True)
    timeout = duration(text)
    return HangLimit(timeout=timeout, restarts=True) if timeout else HangLimit()


def exit_meanings(text: str) -> dict[int, ExitMeaning]:
    """Parse meanings of exit codes."""
    try:
        return parse_exit_meanings(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def factor(text: str) -> float:
    """Parse a factor above 1; 0 turns something off."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number == 0 or 1 < number < math.inf:
        return number
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is neither 0 nor a number above 1")
