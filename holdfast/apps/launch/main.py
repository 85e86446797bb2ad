"""``holdfast launch``: runs the ranks of a training script on this node, in place of torchrun.

Standard library only: every start and every restart waits for this process.
"""

import os
from collections.abc import Sequence

from holdfast.adapters.launch.cgroups import create_cgroup
from holdfast.apps.launch.guard import fork_under_guard
from holdfast.apps.launch.launcher import Launcher
from holdfast.apps.launch.option_rows import Options
from holdfast.apps.launch.options import PROGRAM, command_line_parser, parse
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.kit.processes import become_subreaper
from holdfast.model.errors import ConfigError

__all__ = ("command_line_parser", "main")


def main(argv: Sequence[str], program: str = PROGRAM, more: Options = ()) -> int:
    """Run the ranks until they end, by the command line of a program with ``more`` options.

    Raises:
        ConfigError: an option is invalid, or the script does not exist.

    """
    environment = dict(os.environ)
    options = parse(argv, environment, program, more)
    if options.script_file and not os.path.exists(options.script_file):
        what = f"script: {options.script_file!r} does not exist"
        raise ConfigError(f"{what}; expected a Python script, or -m MODULE")
    cgroup = create_cgroup(environment)
    lease = fork_under_guard(cgroup)
    if isinstance(lease, int):
        return lease
    become_subreaper()
    with StderrRelay() as relay:
        return Launcher(options, environment, lease, relay, cgroup).run()
