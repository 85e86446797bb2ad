"""A job as the doctor checks it, and a rule on jobs: pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.pod_templates import JobTemplates
from holdfast.adapters.kubernetes.jobs.requests import JobRequests
from holdfast.decisions.doctor import LineChange, RuleSeverity, Violation
from holdfast.model.names import Labels


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUnderTest:
    """A job that the doctor checks."""

    kind: str
    """Kind of the object that has the pods: the job, or the object created for it."""

    state: JobState
    requests: JobRequests
    templates: JobTemplates
    labels: Labels


@dataclass(frozen=True, slots=True)
class JobRule:
    """One row of the table of rules on jobs."""

    name: str
    find: Callable[[JobUnderTest], Iterator[Violation]]
    kinds: frozenset[str] = frozenset()
    """Kinds that the rule applies to; empty for all."""

    def check(self, job: JobUnderTest) -> Iterator[Violation]:
        """Yield each violation by a job; none for kinds that the rule does not apply to."""
        if not self.kinds or job.kind in self.kinds:
            yield from self.find(job)


def violation(severity: RuleSeverity, path: str, value: object, why: str) -> Violation:
    """Return a violation whose remedy is one line: ``value`` at ``path``, or None to remove it."""
    return Violation(severity=severity, why=why, remedy=LineChange(path, value))
