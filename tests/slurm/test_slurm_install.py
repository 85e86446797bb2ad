"""Holdfast is put on a machine of a Slurm cluster, and taken away again."""

import configparser
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.cli.slurm.commands import slurm
from holdfast.apps.controller.config import ControllerConfig
from holdfast.apps.exit_codes import ExitCode
from holdfast.kit.config import load_config
from tests.engines.host_tools import require_tool

COMPILER = """\
#!/bin/sh
[ -e {folder}/no-headers ] && echo 'fatal error: slurm/spank.h: No such file' >&2 && exit 1
for word; do last=$out; out=$word; [ "$last" = -o ] && target=$out; done
cat {folder}/version > "$target"
"""
"""Compiles nothing, as any machine can."""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.plugstack = folder / "plugstack.conf"
        self.version = folder / "version"
        self.version.write_text("1", encoding="utf-8")
        self.no_headers = folder / "no-headers"
        self.compiler = folder / "cc"
        self.compiler.write_text(COMPILER.format(folder=folder), encoding="utf-8")
        self.compiler.chmod(0o755)

    def run(self, command: str, *options: str) -> Result:
        return CliRunner().invoke(
            slurm, [command, f"--prefix={self.root}", *options], standalone_mode=False
        )

    def install(self, role: str = "compute", *options: str) -> Result:
        return self.run(
            "install", f"--role={role}", f"--plugstack={self.plugstack}",
            f"--compiler={self.compiler}", "--holdfast=/opt/bin/holdfast",
            "--report-dir=/fsx/holdfast", *options,
        )  # fmt: skip

    @property
    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text(encoding="utf-8")
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    @property
    def library(self) -> Path:
        return self.root / "usr/local/lib/holdfast/holdfast_auto_resume.so"

    @property
    def line(self) -> str:
        return f"optional {self.library} supervisor=/opt/bin/holdfast"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("role", "name", "setting", "command"),
    [
        ("compute", "prolog", "Prolog", "check prolog --report-dir /fsx/holdfast"),
        ("head", "prolog-slurmctld", "PrologSlurmctld", "check prolog --state-dir {root}/var/lib/"),
    ],
)
def test_the_scripts_of_slurms_prologs_are_offered_and_run_by_slurm_itself(
    machine: Machine, role: str, name: str, setting: str, command: str
) -> None:
    path = machine.root / "etc/holdfast" / name
    plain = machine.install(role)
    assert setting not in plain.output
    assert not path.exists()

    requested = machine.install(role, "--prolog")

    follow = "scontrol reconfigure" if role == "compute" else "systemctl restart slurmctld"
    assert f"next: add to slurm.conf, and {follow}: {setting}={path}\n" in requested.output
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/sh\n")
    assert f"\n/opt/bin/holdfast {command.format(root=machine.root)}" in text
    assert "@" not in text
    assert machine.run("uninstall").return_value == ExitCode.OK
    assert not path.exists()


@pytest.mark.parametrize(("role", "name"), [("compute", "prolog"), ("head", "prolog-slurmctld")])
def test_only_what_is_broken_fails_a_prolog_and_not_a_check_that_cannot_run(
    machine: Machine, tmp_path: Path, role: str, name: str
) -> None:
    program = tmp_path / "holdfast"
    machine.install(role, "--prolog", f"--holdfast={program}")
    script = machine.root / "etc/holdfast" / name

    assert subprocess.run([script], check=False, capture_output=True).returncode == 0  # not there
    for status, reported in ((0, 0), (1, 1), (2, 0), (70, 0)):
        program.write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
        program.chmod(0o755)
        assert subprocess.run([script], check=False).returncode == reported


@pytest.mark.parametrize("role", ["head", "compute", "login"])
def test_a_dry_run_shows_each_file_in_full_and_writes_nothing(machine: Machine, role: str) -> None:
    shown = machine.install(role, "--dry-run", "--sagemaker-dir")

    assert shown.return_value == ExitCode.OK
    assert not machine.root.exists()
    assert not machine.plugstack.exists()
    machine.install(role, "--sagemaker-dir")
    for path, text in machine.files.items():
        if path.endswith((".toml", ".service")):
            assert f"would be written: {machine.root / path}\n" in shown.output
            assert all(line.strip() in shown.output for line in text.splitlines())
    assert f"would be written: {machine.plugstack}: {machine.line}\n" in shown.output
    assert f"-o {machine.library} holdfast_auto_resume.c\n" in shown.output


@pytest.mark.parametrize("role", ["head", "compute", "login"])
def test_what_was_installed_is_what_is_removed(machine: Machine, role: str) -> None:
    machine.install(role, "--sagemaker-dir")
    assert (machine.root / "opt/sagemaker_cluster").is_dir()
    assert machine.plugstack.read_text(encoding="utf-8") == f"{machine.line}\n"

    done = machine.run("uninstall")

    assert done.return_value == ExitCode.OK
    assert not machine.root.exists()
    assert not machine.plugstack.exists()


def test_installing_again_changes_nothing(machine: Machine) -> None:
    machine.install()
    before = machine.files

    again = machine.install()

    assert again.return_value == ExitCode.OK
    assert "written" not in again.output
    assert machine.files == before
    assert machine.plugstack.read_text(encoding="utf-8").count("\n") == 1


def test_another_slurm_gets_another_plugin(machine: Machine) -> None:
    machine.install()
    machine.version.write_text("2", encoding="utf-8")

    again = machine.install()

    assert f"written: {machine.library}\n" in again.output
    assert machine.library.read_text(encoding="utf-8") == "2"
    machine.run("uninstall")
    assert not machine.library.exists()


def test_the_line_of_an_earlier_program_is_replaced(machine: Machine) -> None:
    machine.plugstack.write_text("# ours\noptional /a.so\n", encoding="utf-8")
    machine.install()

    machine.install("compute", "--holdfast=/usr/bin/holdfast")

    lines = machine.plugstack.read_text(encoding="utf-8").splitlines()
    assert lines == ["# ours", "optional /a.so",
                     f"optional {machine.library} supervisor=/usr/bin/holdfast"]  # fmt: skip


def test_a_configuration_that_nobody_changed_follows_the_options(machine: Machine) -> None:
    machine.install()

    again = machine.install("compute", "--report-dir=/lustre")

    assert again.return_value == ExitCode.OK
    assert 'report_dir = "/lustre"' in machine.files["etc/holdfast/agent.toml"]


def test_an_empty_plugstack_conf_that_was_there_stays(machine: Machine) -> None:
    machine.plugstack.touch()
    machine.install()

    machine.run("uninstall")

    assert machine.plugstack.read_text(encoding="utf-8") == ""


def test_hyperpods_directory_is_made_only_when_asked_for(machine: Machine) -> None:
    machine.install()

    assert not (machine.root / "opt").exists()


def test_lines_of_others_stay(machine: Machine) -> None:
    text = f"required /other.so\n# {machine.library} is ours\ninclude /etc/plugstack.d/*"
    machine.plugstack.write_text(text, encoding="utf-8")
    machine.plugstack.chmod(0o640)
    machine.install()

    machine.run("uninstall")

    assert machine.plugstack.read_text(encoding="utf-8") == f"{text}\n"
    assert machine.plugstack.stat().st_mode & 0o777 == 0o640


def test_what_an_operator_changed_is_kept_and_reported(machine: Machine) -> None:
    machine.install("head")
    config = machine.root / "etc/holdfast/controller.toml"
    unit = machine.root / "etc/systemd/system/holdfast-controller.service"
    for path in (config, unit):
        path.write_text(path.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    machine.plugstack.write_text(f"{machine.line} --grace=5s\n", encoding="utf-8")

    again = machine.install("head")

    assert again.return_value == ExitCode.PARTLY_DONE
    assert f"kept: {config}: it was changed, or was not written by Holdfast\n" in again.output
    assert f"kept: {unit}: it was changed, or was not written by Holdfast\n" in again.output
    assert f"kept: {machine.plugstack}: existing line: {machine.line} --grace=5s\n" in again.output
    assert unit.read_text(encoding="utf-8").endswith("# mine\n")

    gone = machine.run("uninstall")
    assert gone.return_value == ExitCode.PARTLY_DONE
    assert f"kept: {config}: it was changed since\n" in gone.output
    assert config.exists()
    assert not machine.plugstack.exists()
    assert not machine.library.exists()


def test_a_configuration_that_was_there_before_is_never_removed(machine: Machine) -> None:
    config = machine.root / "etc/holdfast/agent.toml"
    config.parent.mkdir(parents=True)
    config.write_text("", encoding="utf-8")

    assert machine.install().return_value == ExitCode.PARTLY_DONE
    machine.run("uninstall")

    assert config.read_text(encoding="utf-8") == ""


def test_two_roles_of_one_machine_are_removed_together(machine: Machine) -> None:
    machine.install("head")
    machine.install("compute")

    machine.run("uninstall")

    assert not machine.root.exists()


def test_a_slurm_elsewhere_gets_its_line_where_it_reads_it_and_a_plugin_of_its_headers(
    machine: Machine, tmp_path: Path, monkeypatch
) -> None:
    scontrol = tmp_path / "opt/slurm/bin/scontrol"
    header = tmp_path / "opt/slurm/include/slurm/spank.h"
    for file, text in (
        (scontrol, "#!/bin/sh\necho 'PlugStackConfig         = /opt/slurm/etc/plugstack.conf'\n"),
        (header, ""),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)

    arguments = ["install", "--dry-run", "--role=login", f"--compiler={machine.compiler}"]
    said = CliRunner().invoke(slurm, arguments, standalone_mode=False).output

    assert "would be written: /opt/slurm/etc/plugstack.conf: optional /usr/local/lib" in said
    assert f" -I{header.parent.parent} " in said


def test_without_headers_the_message_says_what_to_install_and_the_rest_can_be_removed(
    machine: Machine,
) -> None:
    machine.no_headers.touch()

    failed = machine.install()

    assert "slurm/spank.h: No such file" in str(failed.exception)
    assert "libslurm-dev" in str(failed.exception)
    assert not machine.plugstack.exists()
    machine.run("uninstall")
    assert not machine.root.exists()


def test_uninstalling_what_is_not_there_is_no_error(machine: Machine) -> None:
    done = machine.run("uninstall")

    assert done.return_value == ExitCode.OK
    assert "Nothing is installed" in done.output


def test_a_dry_run_of_uninstall_removes_nothing(machine: Machine) -> None:
    machine.install()
    before = machine.files

    shown = machine.run("uninstall", "--dry-run")

    assert f"would be removed: {machine.library}\n" in shown.output
    assert machine.files == before
    assert machine.plugstack.exists()


def test_a_manifest_that_cannot_be_read_is_reported_and_nothing_is_removed(
    machine: Machine,
) -> None:
    machine.install()
    manifest = machine.root / "etc/holdfast/slurm-install.json"
    manifest.write_text('{"files": 3}', encoding="utf-8")
    before = machine.files

    failed = machine.run("uninstall")

    assert str(manifest) in str(failed.exception)
    assert machine.files == before


def test_agents_and_controllers_need_a_directory_for_reports(machine: Machine) -> None:
    failed = machine.run("install", "--role=compute")

    assert "--report-dir is missing" in str(failed.exception)
    assert not machine.root.exists()


@pytest.mark.parametrize("option", ["--report-dir", "--holdfast"])
def test_a_relative_path_is_refused_as_units_start_elsewhere(machine: Machine, option: str) -> None:
    refused = machine.install("compute", f"{option}=here")

    assert f"{option}: here is relative; give an absolute path" in str(refused.exception)
    assert not machine.root.exists()


def test_a_user_who_does_not_exist_is_refused() -> None:
    argv = ["install", "--role=head", "--report-dir=/fsx", "--user=no-such-user", "--dry-run"]

    refused = CliRunner().invoke(slurm, argv, standalone_mode=False)

    assert "--user: user no-such-user not found on this machine" in str(refused.exception)


def test_the_configurations_are_ones_that_can_be_loaded(machine: Machine) -> None:
    machine.install("head")
    machine.install("compute")

    controller = load_config(machine.root / "etc/holdfast/controller.toml", ControllerConfig)
    agent = load_config(machine.root / "etc/holdfast/agent.toml", AgentConfig)

    assert controller.slurm is not None
    assert agent.slurm is not None
    assert controller.slurm.report_dir == agent.slurm.report_dir == Path("/fsx/holdfast")


def test_the_agents_unit_guards_as_the_one_for_other_clusters_does(machine: Machine) -> None:
    machine.install("compute")
    own = unit(machine.root / "etc/systemd/system/holdfast-agent.service")
    general = unit(Path(__file__).parents[2] / "deploy/systemd/holdfast-agent.service")

    assert own["Service"].pop("ReadWritePaths") == "-/fsx/holdfast"
    assert own["Service"].pop("ExecStart").startswith("/opt/bin/holdfast agent --config ")
    del general["Service"]["ExecStart"]
    assert own == general


@pytest.mark.parametrize("role", ["head", "compute"])
def test_systemd_can_load_the_units(machine: Machine, role: str, tmp_path: Path) -> None:
    verify = require_tool("systemd-analyze")
    program = tmp_path / "holdfast"
    program.symlink_to("/bin/true")
    machine.install(role, f"--holdfast={program}", "--user=root")
    path = next((machine.root / "etc/systemd/system").iterdir())

    done = subprocess.run(
        [verify, "verify", "--man=no", path], capture_output=True, check=False, encoding="utf-8"
    )

    complaints = [line for line in done.stderr.splitlines() if path.name in line]
    assert complaints == []


def unit(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return {name: dict(parser[name]) for name in parser.sections()}


def test_the_manifest_names_what_was_written(machine: Machine) -> None:
    machine.install("login")

    manifest = json.loads(machine.files["etc/holdfast/slurm-install.json"])

    assert list(manifest["lines"].values()) == [machine.line]
    assert str(machine.library) in manifest["files"]
