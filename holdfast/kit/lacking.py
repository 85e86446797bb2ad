"""Errors of a system that lacks resources, which are no evidence about its devices."""

import errno
from typing import Final

LACKING: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
)
"""Other programs may have taken all space, file descriptors, memory or processes."""
