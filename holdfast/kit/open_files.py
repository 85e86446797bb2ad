"""The limit on open files of this process (RLIMIT_NOFILE)."""

import resource

_INHERITED = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_limit(count: int) -> int:
    """Raise the limit to ``count`` files, or as far as is permitted; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return count if soft == resource.RLIM_INFINITY else soft


def restore_limit() -> None:
    """Set the limit with which this process was started: programs that use select() rely on it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, _INHERITED)
