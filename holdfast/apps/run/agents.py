"""How the agent of a local machine is started."""

import sys
from collections.abc import Sequence

from holdfast.adapters.local.layout import NodeDir
from holdfast.apps.run.settings import MachineSettings


def agent_command(name: str, directory: NodeDir, machines: MachineSettings) -> Sequence[str]:
    """The command line of the agent of a local machine."""
    heartbeat_ms = round(machines.heartbeat.total_seconds() * 1000)
    return [
        sys.executable, "-m", "holdfast.apps.agent.main",
        "--node", name,
        "--kmsg", str(directory.kmsg),
        "--log-file", str(directory.messages),
        "--boot-id-file", str(directory.boot_id),
        "--report-dir", str(directory.agent),
        "--heartbeat", f"{heartbeat_ms}ms",
        "--xid-profile", machines.xid_profile,
        "--logs-only",
    ]  # fmt: skip
