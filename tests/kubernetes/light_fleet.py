"""A fleet of a hundred machines on two cores: their agents are played, too."""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from agent_lease import LEASES, prepare_attempt
from machines import Fleet, Machine

from holdfast.adapters.kubernetes.client.api import Patch
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault, Remedy, Severity
from holdfast.model.names import REPORT, Condition, Reason
from holdfast.model.report import NodeReport
from tests.engines.kubelet import PodServer

AT_ONCE = 4
RENEWED_EVERY_S = 10
_REASONS = {Remedy.REPLACE: Reason.XID_REPLACE, Remedy.REBOOT: Reason.XID_REBOOT}
_CONDITIONS = {
    Remedy.REPLACE: Condition.NVIDIA_TERMINATE,
    Remedy.REBOOT: Condition.NVIDIA_REBOOT,
}
_ORDER = """printf '{"action":"%s","node":"%s","token":"%s","refused":false}\\n' \
"$HOLDFAST_ACTION" "$HOLDFAST_NODE" "$HOLDFAST_TOKEN" >> "$0" """


_EXPIRED: Final = "2020-01-01T00:00:00.000000Z"
"""Renewal time of a silent kubelet's lease: always the same, as each change counts as a renewal."""


class LightFleet(Fleet):
    """Machines whose agents say what a test has them say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held: set[str] = set()
        """Groups of machines for which there is no replacement at present."""

        self.logs: PodServer
        self.frozen: set[str] = set()
        """Groups whose new machines start no pods."""

        self.silent: set[str] = set()
        """Machines whose agents renew no lease any more."""

        self.boots: dict[str, tuple[dict[str, Any], str]] = {}
        """Each machine's Node object as it booted, and its boot id."""

        self.failures: list[BaseException] = []
        """Of orders that could not be carried out."""

    def start_groups(self, groups: dict[str, Sequence[str]]) -> None:
        """Machines that are there from the beginning, by their group."""
        (first, *others) = [(name, group) for group, names in groups.items() for name in names]
        self.join(*first)  # alone: msgspec crashes if threads see a type for the first time at once
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda one: self.join(*one), others))

    def breaks(self, name: str, remedy: Remedy) -> None:
        """The agent of a machine finds something that calls for a remedy."""
        now = datetime.now(UTC)
        self._report(
            name,
            Fault(
                family="xid",
                condition=_CONDITIONS[remedy],
                reason=_REASONS[remedy],
                severity=Severity.FATAL,
                remedy=remedy,
                message=f"played: {_REASONS[remedy]}",
                since=now,
                seen_at=now,
            ),
        )

    def falls_silent(self, name: str) -> None:
        """The node controller gives up on a node whose lease is old.

        Its word is played: had it to find out by itself, it would give up on all nodes of a test
        that gets no time to renew their leases.
        """
        metadata = {"name": name, "namespace": "kube-node-lease"}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"holderIdentity": name, "renewTime": _EXPIRED},
        }
        self.silent.add(name)
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        self.api.patch(path, lease, Patch.APPLY)
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        change = {"status": {"conditions": [ready]}}
        self.api.patch(f"/api/v1/nodes/{name}/status", change, Patch.STRATEGIC)
        with suppress(NotFound):
            self.api.delete(f"{LEASES}/{name}")

    def _boot(self, machine: Machine, boot_id: str) -> None:
        self.boots[machine.name] = self.api.get(f"/api/v1/nodes/{machine.name}"), boot_id
        self.silent.discard(machine.name)
        if machine.group in self.frozen:
            self.cluster.nodes.hang(machine.name)
        self._report(machine.name)

    def _report(self, name: str, *faults: Fault) -> None:
        node, boot_id = self.boots[name]
        prepare_attempt(self.api, node, boot_id)
        said = NodeReport(
            node=name,
            boot_id=boot_id,
            sequence=1 + len(faults),
            reported_at=datetime.now(UTC),
            faults=faults,
        )
        annotations = {REPORT: compact_json(said)}
        self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}})

    def _own(self) -> None:
        """Carry out several orders at once, while the leases are renewed."""
        renewer = threading.Thread(target=self._renew, name="leases", daemon=True)
        renewer.start()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while not self._over.wait(0.05):
                for order in self.orders:
                    machine = self.machines.get(order["node"])
                    is_new = order["token"] not in self.done
                    if is_new and machine is not None and machine.group not in self.held:
                        self.done.append(order["token"])
                        done = pool.submit(self._carry_out, order["action"], machine)
                        done.add_done_callback(self._note)
        renewer.join()

    def _note(self, order: Future[None]) -> None:
        if (error := order.exception()) is not None:
            self.failures.append(error)

    def _renew(self) -> None:
        """All leases, one after the other: a slow server gets no second round beside the first."""
        while not self._over.wait(RENEWED_EVERY_S):
            for name in self.machines.keys() - self.silent:
                with suppress(BackendError, KeyError):
                    prepare_attempt(self.api, *self.boots[name])

    def tell(self) -> None:
        super().tell()
        print(f"orders that failed: {self.failures}")  # noqa: T201

    def _command(self) -> str:
        argv = json.dumps(["sh", "-c", _ORDER, str(self.folder / "orders")])
        return f"""
            [provider]
            replace = "command"
            [provider.command]
            reboot = {argv}
            replace = {argv}
        """
