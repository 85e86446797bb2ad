"""Text of other programs as one printable line of bounded length, for messages and logs."""


def one_line(text: str, limit: int) -> str:
    """Return at most ``limit`` characters; control characters and runs of blanks become a space."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:limit]
