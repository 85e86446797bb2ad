"""Runs many commands of the AWS command line in one process, which is half a second each cheaper.

python aws_commands.py    # a list of arguments a line, as JSON; answers with how each ended
"""

import contextlib
import io
import json
import sys

from awscli.clidriver import create_clidriver  # first: it replaces botocore by its own
from botocore_files import read_once


def ended(argv: list[str]) -> dict[str, object]:
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = create_clidriver().main(argv)
        except SystemExit as exit_:  # what its parser does with arguments that it does not know
            code = exit_.code
    texts = {}
    for name, stream in (("out", out), ("err", err)):
        stream.flush()
        texts[name] = stream.buffer.getvalue().decode()
    return {"code": code, **texts}


if __name__ == "__main__":
    read_once()
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(ended(json.loads(line)))}\n")
        sys.stdout.flush()
