"""Log rules of a supervised step, evaluated on its output."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.slurm.jobs.srun_command import redirects_output
from holdfast.adapters.slurm.jobs.step_output import OWN_MESSAGES, is_output_in_files
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import LOG_RULES_VARIABLE

if TYPE_CHECKING:  # every step waits for the start of this process
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.hangs import Hang
    from holdfast.decisions.log_rules import JobLogRule

_WHERE: Final = "the step"
"""All ranks of a step share its output, so that a line does not name its rank."""


class StepRules:
    """Log rules of the attempts of one step.

    Args:
        environment: of the step; may name the file of the rules.
        srun: command line of the step.

    """

    def __init__(self, environment: Mapping[str, str], srun: Sequence[str]) -> None:
        self._given: tuple[JobLogRule, ...] = ()
        self._matcher: PatternMatcher | None = None
        self._rules: JobLogRules | None = None
        self.problems: tuple[str, ...] = ()
        """Why rules are ignored."""

        name = environment.get(LOG_RULES_VARIABLE, "").strip()
        if not name:
            return
        if redirects_output(srun, environment) or not is_output_in_files():
            needed = "srun without --output and --error, and standard output and error in files"
            self.problems = (
                f"{LOG_RULES_VARIABLE} is {name[:60]!r}, which needs {needed}, without a pipe such "
                "as | tee; no log rule applies",
            )
            return
        from holdfast.adapters.host import pattern_matcher as matcher  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.log_rule_file import load_log_rules  # noqa: PLC0415 - with rules only

        try:
            self._given = load_log_rules(Path(name), LOG_RULES_VARIABLE)
        except ConfigError as error:
            self.problems = tuple(f"{one}; no log rule applies" for one in error.problems)
            return
        self._matcher = matcher.PatternMatcher()

    def begin(self) -> None:
        """Begin the next attempt."""
        if self._matcher is None:
            return
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only

        self._rules = JobLogRules(self._matcher, self._given)

    def take(self, file: int, lines: Sequence[str], at: datetime) -> None:
        """Evaluate lines of the output.

        Args:
            file: number of the file that has them.
            lines: its next lines.
            at: time at which they were read.

        """
        if self._rules is not None:
            of_ranks = [line for line in lines if not line.startswith(OWN_MESSAGES)]
            self._rules.take_or_end(file, of_ranks, at=at, where=_WHERE)

    def hang(self, began_at: datetime, known_until: datetime | None) -> "Hang | None":
        """Return the hang that the rules show; None if there is none.

        Args:
            began_at: time at which the attempt began.
            known_until: time until which all lines were taken; None if nothing is known.

        """
        return None if self._rules is None else self._rules.hang(began_at, known_until)

    @property
    def are_given(self) -> bool:
        """Whether there are rules to evaluate."""
        return self._rules is not None and self._rules.are_given

    @property
    def rejected(self) -> str:
        """Return which rules are not evaluated, and why; empty if all are."""
        return "" if self._rules is None else "; ".join(map(str, self._rules.rejected))
