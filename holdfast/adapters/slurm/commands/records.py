"""Splits the output of ``scontrol -o`` into records. Pure."""


def records(text: str, key: str) -> list[str]:
    """Return the records in the output of ``scontrol -o``; each begins with ``key``.

    scontrol prints free text as it was set, such as the reason of a node. An end of line in it
    must not make all other records unreadable: the rest belongs to the record before.

    Raises:
        ValueError: the output does not begin with a record.

    """
    found: list[str] = []
    for line in text.split("\n"):  # not splitlines: Unicode has more ends of lines
        if line.startswith(key):
            found.append(line)
        elif line and not found:
            raise ValueError(f"unexpected output of scontrol: {line[:100]!r}")
        elif line:
            found[-1] = f"{found[-1]} {line}"
    return found
