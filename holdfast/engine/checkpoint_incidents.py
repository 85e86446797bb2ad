"""Records an incident for each checkpoint that was moved out of the way of a job."""

from datetime import datetime

from holdfast.decisions.checkpoint_incidents import quarantine_id, quarantine_incidents
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.errors import BackendError, StateDamaged, StorageFull
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Leadership


class CheckpointIncidents:
    """Reads the moves of all jobs, and stores each once; a restart reads the store again."""

    def __init__(
        self,
        jobs: JobBackend,
        incidents: IncidentStore,
        leadership: Leadership,
        policy: RemediationPolicy,
    ) -> None:
        self._jobs = jobs
        self._incidents = incidents
        self._leadership = leadership
        self._policy = policy
        self._handled: frozenset[str] = frozenset()  # so that the store is read for new ones only

    def record(self, now: datetime) -> None:
        """Store the incidents of moves that have none.

        Raises:
            BackendError: the moves or the incidents cannot be read, or some cannot be written; all
                others are, and the next call tries those again.

        """
        moved = self._jobs.moved_checkpoints()
        names = frozenset(quarantine_id(one) for each in moved.values() for one in each)
        if names <= self._handled:
            self._handled = names
            return
        if not self._leadership.is_held():
            return
        stored = [*self._incidents.list_incidents()]
        failed: dict[str, BackendError] = {}
        for job, each in moved.items():
            for incident in quarantine_incidents(job, each, stored, self._policy, now):
                try:
                    self._incidents.put(incident)
                except (StateDamaged, StorageFull):  # holds for all others, too
                    raise
                except BackendError as error:
                    failed[incident.id] = error
                else:
                    stored.append(incident)
        self._handled = names - failed.keys()
        if failed:
            raise next(iter(failed.values()))
