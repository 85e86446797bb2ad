"""Each rule of the Slurm doctor reports a cluster that violates it."""

import json
import os
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from slurm_fleet_at_work import on_both_versions
from supervised_cluster import Supervised, skip_without_compiler

from holdfast.adapters.slurm.install.cluster_facts import AgentFacts, ClusterFacts
from holdfast.adapters.slurm.install.cluster_reading import closed_to_others
from holdfast.adapters.slurm.install.doctor_rules import RULES, diagnose_cluster
from holdfast.adapters.slurm.nodes.leadership import FileLock
from holdfast.adapters.slurm.nodes.munge import munge_of
from holdfast.adapters.slurm.nodes.signatures import signed
from holdfast.apps.exit_codes import ExitCode
from holdfast.decisions.doctor import RuleSeverity
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

SOUND = ClusterFacts(
    settings={
        "SLURM_VERSION": "25.11.2",
        "SlurmctldParameters": "enable_expedited_requeue,idle_on_node_suspend",
        "JobRequeue": "1",
        "MaxBatchRequeue": "11",
        "Prolog[0]": "/etc/slurm/prolog",
        "PrologFlags": "Alloc,Contain",
        "SchedulerParameters": "permit_job_expansion,nohold_on_prolog_fail",
        "ReturnToService": "2",
        "SlurmdTimeout": "300 sec",
        "KillWait": "120 sec",
        "KillOnBadExit": "1",
        "UnkillableStepTimeout": "50 sec",
        "MessageTimeout": "10 sec",
        "RequeueExit": "(null)",
        "JobFileAppend": "1",
        "PrivateData": "cloud",
        "RebootProgram": "/sbin/reboot",
        "ResumeProgram": "/r",
        "SuspendProgram": "/s",
        "SuspendTime": "3600 sec",
        "AuthInfo": "socket=/run/munge.sock,cred_expire=30",
    },
    nodes={"n1": {"State": "MIXED+FAIL", "NodeAddr": "n1"}},
    reservations=("HOT_SPARE_dev",),
    plugin="optional /x/holdfast_auto_resume.so supervisor=/usr/bin/holdfast",
    agents={"n1": AgentFacts(age=timedelta(minutes=1), skew=timedelta(seconds=1))},
    is_controlled=True,
    replace="ec2-autoscaling",
    reboot="slurm-reboot",
    max_retries=10,
)
EXPANDS = "permit_job_expansion"


def with_settings(**settings: str) -> ClusterFacts:
    return replace(SOUND, settings={**SOUND.settings, **settings})


def with_nodes(**values: str) -> ClusterFacts:
    return replace(SOUND, nodes={"n1": {**SOUND.nodes["n1"], **values}})


def powered(resume_timeout: str, join_timeout: timedelta | None) -> ClusterFacts:
    facts = with_settings(ResumeTimeout=resume_timeout)
    return replace(facts, replace="slurm-power", join_timeout=join_timeout)


VIOLATIONS: list[tuple[str, ClusterFacts]] = [
    ("slurmctld-down", replace(SOUND, problem="Unable to contact slurm controller")),
    ("munge", replace(SOUND, has_munge=False)),
    ("plugin-missing", replace(SOUND, plugin="")),
    ("plugin-missing", replace(SOUND, plugin="", has_plugstack=False)),
    ("plugin-does-not-load", replace(SOUND, has_option=False)),
    ("plugin-required", replace(SOUND, plugin=SOUND.plugin.replace("optional", "required"))),
    ("supervisor-missing", replace(SOUND, has_supervisor=False)),
    ("supervisor-closed", replace(SOUND, supervisor_closed="/root (drwx------)")),
    ("prolog-at-launch", with_settings(PrologFlags="(null)")),
    ("prolog-at-launch", with_settings(PrologFlags="Serial", Prolog="/etc/prolog")),
    ("controller-down", replace(SOUND, is_controlled=False)),
    ("reports-writable", replace(SOUND, open_reports="/fsx/holdfast: mode 1777")),
    ("agents-missing", replace(SOUND, agents={})),
    ("agents-silent", replace(SOUND, agents={
        "n1": AgentFacts(age=timedelta(minutes=1, microseconds=1), skew=timedelta())})),
    ("clocks", replace(SOUND, agents={
        "n1": AgentFacts(age=timedelta(), skew=timedelta(seconds=1, microseconds=1))})),
    ("expedited-requeue", with_settings(SlurmctldParameters="(null)")),
    ("expedited-requeue", with_settings(SlurmctldParameters="", SLURM_VERSION="26.05.0-rc1")),
    ("job-requeue", with_settings(JobRequeue="0")),
    ("max-batch-requeue", with_settings(MaxBatchRequeue="10")),
    ("prolog-holds-jobs", with_settings(SchedulerParameters=EXPANDS)),
    ("prolog-holds-jobs", with_settings(SchedulerParameters=EXPANDS, Prolog="/etc/prolog")),
    ("job-expansion", with_settings(SchedulerParameters="nohold_on_prolog_fail,no_permit")),
    ("other-retries", replace(SOUND, max_retries=11)),
    ("other-retries", replace(SOUND, plugin=f"{SOUND.plugin} --max-retries=3")),
    ("other-retries", replace(SOUND, plugin=f"{SOUND.plugin} --max-retries=10 --max-retries=3")),
    ("return-to-service", with_settings(ReturnToService="1")),
    ("slurmd-timeout", with_settings(SlurmdTimeout="301 sec")),
    ("slurmd-timeout", with_settings(SlurmdTimeout="0 sec")),
    ("kill-wait", with_settings(KillWait="121 sec")),
    ("kill-on-bad-exit", with_settings(KillOnBadExit="0")),
    ("unkillable-steps", with_settings(UnkillableStepTimeout="49 sec")),
    ("requeue-exit", with_settings(RequeueExit="75")),
    ("job-file-append", with_settings(JobFileAppend="0")),
    ("private-nodes", with_settings(PrivateData="cloud,nodes")),
    ("gpus-missing", with_nodes(State="IDLE+INVALID_REG")),
    ("reboot-program", with_settings(RebootProgram="(null)")),
    ("power-saving", replace(with_settings(SuspendTime="INFINITE"), replace="slurm-power")),
    ("resume-timeout", powered("60", timedelta(minutes=20))),
    ("resume-timeout", powered("599 sec", timedelta(minutes=20))),
    ("resume-timeout", powered("1200 sec", timedelta(minutes=20))),
    ("resume-timeout", powered("900 sec", timedelta(minutes=15))),
    ("power-saving", replace(with_settings(ResumeProgram="(null)"), replace="slurm-power")),
    ("power-saving", replace(with_settings(SuspendProgram="(null)"), replace="slurm-power")),
    ("fixed-addresses", with_nodes(NodeAddr="10.0.0.1")),
    ("cred-expire", with_settings(AuthInfo="(null)")),
    ("cred-expire", with_settings(AuthInfo="cred_expire=31")),
    ("no-spares", replace(SOUND, reservations=("HOLDFAST_7",))),
]  # fmt: skip


def test_a_sound_cluster_violates_no_rule() -> None:
    assert diagnose_cluster(SOUND) == []
    assert diagnose_cluster(replace(SOUND, reservations=("NEXT_SPARE_dev",))) == []


@pytest.mark.parametrize(("name", "cluster"), VIOLATIONS, ids=[name for name, _ in VIOLATIONS])
def test_each_violation_is_reported_and_no_other(name: str, cluster: ClusterFacts) -> None:
    assert [one.rule for one in diagnose_cluster(cluster)] == [name]


def test_every_rule_is_violated_here() -> None:
    assert {name for name, _ in VIOLATIONS} == {rule.name for rule in RULES}


@pytest.mark.parametrize(
    "cluster",
    [
        replace(with_settings(RebootProgram="(null)"), reboot="ec2"),
        with_settings(ResumeProgram="(null)", SuspendTime="INFINITE"),
        with_nodes(NodeAddr="10.0.0.1", State="IDLE+CLOUD"),
        with_nodes(NodeAddr="127.0.0.1"),
        replace(with_nodes(NodeAddr="10.0.0.1"), replace=""),
        replace(SOUND, agents=None, is_controlled=None),
        with_settings(**{"Prolog[0]": "(null)", "SchedulerParameters": EXPANDS}),
        replace(SOUND, max_retries=None, plugin=f"{SOUND.plugin} --max-retries=3"),
        replace(SOUND, max_retries=3, plugin=f"{SOUND.plugin} --poll=3s --max-retries=3"),
        with_settings(SlurmdTimeout="1 sec", KillWait="0 sec"),
        powered("600 sec", timedelta(minutes=20)),
        powered("1199 sec", timedelta(minutes=20)),
        powered("60 sec", None),
        replace(powered("60 sec", timedelta(minutes=20)), replace="ec2"),
        with_settings(PrologFlags="X11"),
        with_settings(SLURM_VERSION="25.05.9", SlurmctldParameters="(null)"),
        with_settings(SLURM_VERSION="", SlurmctldParameters="(null)"),
        with_settings(**{"Prolog[0]": "(null)", "PrologFlags": "(null)"}),
        replace(SOUND, agents={"n1": AgentFacts(age=timedelta(), skew=-timedelta(days=1))}),
    ],
)  # fmt: skip
def test_settings_that_do_not_apply_are_not_reported(cluster: ClusterFacts) -> None:
    assert diagnose_cluster(cluster) == []


def test_no_setting_is_checked_while_slurmctld_does_not_answer() -> None:
    assert [one.rule for one in diagnose_cluster(ClusterFacts(problem="away"))] == [
        "slurmctld-down"
    ]


def test_at_most_five_nodes_are_named() -> None:
    many = replace(SOUND, nodes={f"n{number}": {} for number in range(9)}, agents={})

    assert [one.found for one in diagnose_cluster(many)] == [
        "no report from: n0, n1, n2, n3, n4 and 4 more"
    ]


SETTINGS = {
    "ReturnToService": "2",
    "KillOnBadExit": "1",
    "JobFileAppend": "1",
    "SchedulerParameters": "bf_interval=1,nohold_on_prolog_fail,permit_job_expansion",
    "UnkillableStepTimeout": "60",
    "MaxBatchRequeue": "20",
    "PrologFlags": "Alloc",
    "SlurmctldParameters": "power_save_interval=1,enable_expedited_requeue",
}


class Doctor:
    """The doctor of a cluster, with the configuration of its controller."""

    def __init__(self, cluster: Supervised, folder: Path) -> None:
        self._cluster = cluster
        self._config = folder / "controller.toml"
        self.reports, self.state = folder / "reports", folder / "state"
        for part in (self.reports, self.state):
            part.mkdir()
        self._config.write_text(
            f"""
            platform = "slurm"
            [slurm]
            report_dir = "{self.reports}"
            state_dir = "{self.state}"
            conf = "{cluster.slurm.conf}"
            [provider]
            replace = "slurm-power"
            reboot = "slurm-reboot"
            """,
            encoding="utf-8",
        )

    def examine(self, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        done = self._cluster.cli(
            "slurm", "doctor", f"--config={self._config}", "--output=json", *options
        )
        assert done.stderr == ""
        return done.returncode, {one["rule"]: one for one in json.loads(done.stdout)}

    def report(self, node: str, *, age_s: float = 0.0) -> None:
        path = self.reports / f"{node}.json"
        report = {"node": node, "boot_id": "b", "sequence": 1,
                  "reported_at": "2026-01-01T00:00:00+00:00"}  # fmt: skip
        content = json.dumps({"machine": "m", "report": report})
        path.write_text(signed(content, munge_of(self._cluster.slurm.conf)), encoding="utf-8")
        written = path.stat().st_mtime - age_s
        os.utime(path, (written, written))


def test_the_path_that_prevents_other_users_from_a_program_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/holdfast"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    link = Path(tempfile.mkdtemp()) / "holdfast"
    link.symlink_to(program)
    link.parent.chmod(0o755)
    script = link.with_name("script")

    for path in (program, link):
        assert closed_to_others(str(path)).endswith("(drwx------)")
    script.write_text("#!/bin/sh -e\n", encoding="utf-8")
    script.chmod(0o750)
    assert closed_to_others(str(script)) == f"{script} (-rwxr-x---)"
    script.chmod(0o755)
    assert closed_to_others(str(script)) == ""
    script.write_text(f"#!{program}\n", encoding="utf-8")
    assert closed_to_others(str(script)).endswith("(drwx------)")
    assert closed_to_others("/bin/sh") == ""
    assert closed_to_others("/nowhere/holdfast") == ""


def test_a_real_cluster_is_diagnosed_until_it_is_fixed(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    skip_without_compiler(programs)
    settings = {**SETTINGS, "ResumeTimeout": "600"}
    if programs.is_old:
        del settings["MaxBatchRequeue"]  # came later
    with SlurmCluster(programs, nodes=("node1", "node2"), settings=settings) as slurm:
        place = Path(tempfile.mkdtemp())
        cluster = Supervised(slurm, programs, place)
        doctor = Doctor(cluster, tmp_path)
        code, found = doctor.examine()
        assert code == ExitCode.FAILED
        assert found.keys() == {
            "plugin-missing", "controller-down", "agents-missing", "no-spares",
        }  # fmt: skip

        assert cluster.install().returncode == 0
        slurm.run("scontrol", "create", "reservation", "reservationname=HOT_SPARE_dev",
                  "nodes=node2", "users=root", "starttime=now", "duration=60")  # fmt: skip
        doctor.report("node1", age_s=90)
        doctor.report("node2")
        lock = FileLock(doctor.state, may_take=True)
        assert lock.is_held()
        try:
            code, found = doctor.examine()
            assert found.keys() == {"agents-silent", "supervisor-closed"}
            assert str(place) in found["supervisor-closed"]["found"]
            assert code == ExitCode.FAILED
            place.chmod(0o755)
            code, found = doctor.examine()
            assert found.keys() == {"agents-silent"}
            assert found["agents-silent"]["severity"] == RuleSeverity.WARNING
            assert code == ExitCode.OK
            assert doctor.examine("--strict")[0] == ExitCode.FAILED
        finally:
            lock.close()

        _break_plugin(cluster)
        assert doctor.examine()[1].keys() >= {"plugin-does-not-load", "supervisor-missing"}

        slurm.stop_controller()
        assert doctor.examine()[1].keys() == {"slurmctld-down"}
        slurm.start_controller()


def _break_plugin(cluster: Supervised) -> None:
    library = next((cluster.prefix / "usr/local/lib/holdfast").iterdir())
    library.write_bytes(b"of another Slurm")
    cluster.program.unlink()


@on_both_versions
def test_a_real_cluster_with_defaults_violates_the_rules_on_its_settings(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    planted: dict[str, str] = {
        "JobRequeue": "0", "RequeueExit": "75", "PrivateData": "nodes", "KillWait": "200",
        "SlurmdTimeout": "400", "UnkillableStepTimeout": "20", "MessageTimeout": "10",
        "SuspendTime": "INFINITE",
    }  # fmt: skip
    with SlurmCluster(programs, nodes=("node1",), gpus=2, settings=planted) as slurm:
        slurm.lose_gpus("node1", 1)
        slurm.until(lambda: "INVALID_REG" in slurm.state("node1"))
        cluster = Supervised(slurm, programs, tmp_path)
        found = Doctor(cluster, tmp_path).examine()[1]

    assert found.keys() >= {
        "job-requeue", "requeue-exit", "private-nodes", "kill-wait", "slurmd-timeout",
        "unkillable-steps", "power-saving", "gpus-missing", "return-to-service",
        "kill-on-bad-exit", "job-file-append", "prolog-holds-jobs", "prolog-at-launch",
    }  # fmt: skip
    assert all(one["why"] and one["remedy"] for one in found.values())
