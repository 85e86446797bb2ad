"""When a job may exchange nodes while it runs."""

import pytest

from holdfast.adapters.slurm.commands.job_text import jobs_format, parse_batch_jobs
from holdfast.adapters.slurm.jobs.resizing import refusal

ALLOWS = "bf_interval=1,permit_job_expansion"
NEW = {"SLURM_VERSION": "24.11.5", "SchedulerParameters": ALLOWS,
       "AccountingStorageType": "(null)"}  # fmt: skip
OLD = {"SLURM_VERSION": "22.05.8", "SchedulerParameters": ALLOWS,
       "AccountingStorageType": "accounting_storage/none"}  # fmt: skip
PLAIN = "JobId=7 JobName=x CoreSpec=* JOB_GRES=(null)   Nodes=node1 GRES= MinCPUsNode=1"


def a_job(*, parts: int = 1):
    values = ["7", "7", "7" if parts > 1 else "N/A", "0", "RUNNING", "None", "0", "1", "1",
              "N/A", "N/A", "N/A", "N/A", "1", "node1", "(null)", "node1", "ann", "dev", "(null)",
              "0", ""]  # fmt: skip
    lines = []
    for part in range(parts):
        values[3] = str(part)
        lines.append("|".join(values) + "=m\n")
    assert jobs_format("=m").count(",") == len(values) - 1
    return parse_batch_jobs("".join(lines), "=m")["7"]


@pytest.mark.parametrize(
    ("described", "settings", "why"),
    [
        (PLAIN, NEW, ""),
        (PLAIN.replace(" JOB_GRES=(null)", ""), NEW, ""),
        (PLAIN.replace("(null)", "gpu:h100:2"), NEW, "it has GRES (gpu:h100:2)"),
        (PLAIN, {**NEW, "SchedulerParameters": "bf_interval=1"}, "lacks permit_job_expansion"),
        (PLAIN, {**NEW, "SchedulerParameters": "no_permit_job_expansion"}, "lacks permit_job"),
        (PLAIN, OLD, "without slurmdbd"),
        (PLAIN, {**OLD, "AccountingStorageType": "accounting_storage/slurmdbd"}, ""),
        (PLAIN, {**NEW, "SLURM_VERSION": "24.05.9"}, "without slurmdbd"),
        (PLAIN, {**NEW, "SLURM_VERSION": "25.05.0"}, ""),
        (PLAIN, {**NEW, "SLURM_VERSION": ""}, "without slurmdbd"),
    ],
)
def test_a_job_is_resized_only_where_slurm_goes_on_to_manage_it(
    described: str, settings: dict[str, str], why: str
) -> None:
    found = refusal(a_job(), described, settings)

    assert why in found
    assert bool(why) is bool(found)


def test_a_heterogeneous_job_is_not_resized() -> None:
    assert "heterogeneous" in refusal(a_job(parts=2), PLAIN, NEW)
