"""Annotations of jobs and of their pods, and reasons of the restarts that they configure."""

from typing import Final

from holdfast.model.names.labels import OWN_PREFIX

JOB_RECORD: Final = f"{OWN_PREFIX}/job-record"
"""Annotation of a job with its ``JobRecord``; written by the controller alone."""

RECORD_OF: Final = f"{OWN_PREFIX}/job-record-of"
"""Annotation of a job with its UID, beside the record: a copy of a job starts with a new record."""

JOB_STATUS: Final = f"{OWN_PREFIX}/job-status"
"""Annotation of a job: history of its attempts, for people to read."""

APP_MAX_RETRY_COUNT: Final = f"{OWN_PREFIX}/app-max-retry-count"
"""Annotation of a job: maximum number of restarts after failures of the application itself."""

MANAGED_NAMESPACE: Final = "hyperpod-ns-"
"""Prefix of the namespaces of HyperPod's teams; the rest is the name of the team."""

LOG_MONITORING: Final = f"{OWN_PREFIX}/log-monitoring"
"""Annotation of a job: rules for detecting hangs in its log, as JSON or YAML: a list like
``logMonitoringConfiguration`` of HyperPod's training operator."""

LOG_MONITORING_CONFIG_MAP: Final = f"{OWN_PREFIX}/log-monitoring-config-map"
"""Annotation of a job: name of the ConfigMap in its namespace that holds such a list."""

HEARTBEAT_FILE: Final = f"{OWN_PREFIX}/heartbeat-file"
"""Annotation of a job: path in its containers of a file that its ranks touch as they progress."""

HEARTBEAT_TIMEOUT: Final = f"{OWN_PREFIX}/heartbeat-timeout"
"""Annotation of a job: maximum time between two touches of that file, such as ``10m``."""

FAULT_GRACE: Final = f"{OWN_PREFIX}/fault-grace"
"""Annotation of a job that saves on SIGTERM: time between SIGTERM and SIGKILL when a fault of
hardware stops it, such as ``2m``; at most the grace period of its pods. Without it,
``jobs.fault_grace`` applies."""

KEEP_PODS: Final = f"{OWN_PREFIX}/keep-pods"
"""Annotation of a job whose pods run ``holdfast launch``: with ``true``, a failed node costs its
own pod only, and the other pods stay."""

STARTUP_TIMEOUT: Final = f"{OWN_PREFIX}/startup-timeout"
"""Annotation of a job: maximum time from the start of an attempt to the first touch of that file,
such as ``1h``; without it, a job that has touched no file yet is not restarted."""

LOSS_ACTION: Final = f"{OWN_PREFIX}/loss-action"
"""Annotation of a job: response to a loss in its log that is not finite or that spikes:
``ask``, ``stop``, ``rollback`` or ``skip``."""

LOSS_WINDOW: Final = f"{OWN_PREFIX}/loss-window"
"""Annotation of a job: number of losses whose mean a loss is compared with; 10 if omitted."""

LOSS_TOLERANCE: Final = f"{OWN_PREFIX}/loss-tolerance"
"""Annotation of a job: multiple of that mean by which a spike differs from it, 2 if omitted; with
0, spikes are ignored."""

SKIP_STEPS: Final = f"{OWN_PREFIX}/skip-steps"
"""Annotation of the pods of a restarted job: the steps to skip, if its ``LOSS_ACTION`` is
``skip``."""

BAD_LOSS: Final = f"{OWN_PREFIX}/bad-loss"
"""Annotation of the pods of a job that was restarted for its loss: the step, and the time at which
its loss was found; ``holdfast checkpoint guard`` ignores checkpoints saved since."""

HEARTBEAT_STOPPED: Final = "HeartbeatStopped"
"""Reason of the restart of a job that stopped touching its heartbeat file."""

LOG_STATE_HANGING: Final = "LogStateHanging_"
"""Prefix of the name of a rule in ``LOG_MONITORING``: reason of the restart of a job."""

ATTEMPT: Final = f"{OWN_PREFIX}/attempt"
"""Annotation of the pods of a restarted job: the number of the attempt, 2 for the first restart.
Pods of attempt 1 do not have it: the operator creates them from the object that the user submitted,
before Holdfast writes to it. A job that reads it takes an empty value for 1."""

RESTART_REASON: Final = f"{OWN_PREFIX}/restart-reason"
"""Annotation of the pods of a restarted job: why the previous attempt was stopped."""

HYPERPOD_JOB: Final = "HPJob"
"""Label of the pods of a ``HyperPodPyTorchJob``: its name. AWS's command ``hyp`` selects by it."""

NODE_RANK: Final = f"{OWN_PREFIX}/node-rank"
"""Label of the pods of a ``HyperPodPyTorchJob``: the node rank."""
