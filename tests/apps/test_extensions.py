"""Extensions of other packages, as the guide shows them: installed, chosen, and broken."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import holdfast

GUIDE = (Path(__file__).parents[2] / "docs/howto/extend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL)


def install(site: Path, modules: dict[str, str], points: dict[str, dict[str, str]]) -> None:
    """A distribution as pip leaves it: its modules, and its metadata beside them."""
    for name, text in modules.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    metadata = site / "acme_holdfast-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-holdfast\nVersion: 1.0\n")
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(sections))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with that of the guide."""
    found = tmp_path / "site"
    modules = {name: text for name, text in BLOCKS if name.endswith(".py")}
    points: dict[str, dict[str, str]] = {}
    for name, text in BLOCKS:
        if name == "pyproject.toml":
            points |= tomllib.loads(text)["project"]["entry-points"]
    install(found, modules, points)
    return found


def run(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True, check=False, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip


def agent(site: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = site.parent / "agent.toml"
    config.write_text(text, encoding="utf-8")
    return run(site, "agent", "--config", config, *arguments)


def rules(folder: Path, text: str) -> Path:
    path = folder / "rules.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


RULES = next(text for name, text in BLOCKS if name.endswith("rules.toml"))


def test_a_message_that_fits_a_rule_of_the_guide_is_reported(site: Path, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("3,1,5000000,-;acme_fan fan3: stalled at 0 rpm\n3,2,5000001,-;other acme_fan\n")
    path = rules(tmp_path, RULES)

    done = agent(
        site, f'rule_files = ["{path}"]\nlogs_only = true\nkmsg = "{log}"\nlog_files = []',
        "--once", "--output", "json",
    )  # fmt: skip

    (notice,) = json.loads(done.stdout)["notices"]
    assert (notice["reason"], notice["device"]) == ("FanStalled", "fan3")
    assert (notice["remedy"], done.returncode) == ("none", 0)


def test_a_rule_in_shadow_mode_requests_no_repair(site: Path, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("3,1,5000000,-;acme_fan fan3: stalled at 0 rpm\n")
    path = rules(tmp_path, f'{RULES}severity = "fatal"\nremedy = "reboot"\n')
    config = f'rule_files = ["{path}"]\nlogs_only = true\nkmsg = "{log}"\nlog_files = []\n'

    found = agent(site, config, "--once")
    shadow = agent(site, f"{config}[detectors.custom-rules]\nshadow = true\n", "--once")

    assert (found.returncode, shadow.returncode) == (1, 0)
    assert found.stdout.startswith("reboot: FanStalled since ")


def test_a_check_of_the_configuration_names_file_rule_and_key_of_each_mistake(
    site: Path, tmp_path: Path
) -> None:
    broken = RULES.replace('"HostHardwareError"', '"Nonsense"').replace("{1,2}", "+")
    path = rules(tmp_path, f"{broken}surprise = 1\n")

    done = agent(site, f'rule_files = ["{path}"]\nplugins = ["none-such"]', "--check-config")

    assert done.returncode == 2
    assert f"{path}: rule.fan-stalled.condition: " in done.stderr
    assert f"{path}: rule.fan-stalled.surprise: unknown key" in done.stderr
    assert 'plug-in "none-such"' in done.stderr
    assert "acme-edac" in done.stderr


def test_a_check_of_a_good_configuration_loads_the_detector_of_the_guide(
    site: Path, tmp_path: Path
) -> None:
    path = rules(tmp_path, RULES)
    text = f'plugins = ["acme-edac"]\nrule_files = ["{path}"]\n[detectors.acme-edac]\nshadow = true'

    done = agent(site, text, "--check-config")

    assert (done.returncode, done.stderr) == (0, "holdfast agent: the configuration is valid\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import surely_not_there", "cannot be imported: ModuleNotFoundError"),
        ("raise RuntimeError('licence expired')", "RuntimeError: licence expired"),
        ("build = 1", "expected a callable, got int"),
        ("def build(profile): return 1/0", "its callable failed: ZeroDivisionError"),
        ("def build(profile): return None", "to return a Detector, got NoneType"),
        (
            "from holdfast import Detector\n"
            "def build(profile): return Detector(name='x', reads=frozenset(), detect=list)",
            'its detector is named "x"',
        ),
        (
            "from holdfast import Detector\ndef build(profile):\n"
            "    return Detector(name='bad', reads=frozenset({'lidar'}), detect=list)",
            "it reads lidar; expected one of ",
        ),
    ],
)
def test_a_broken_detector_is_named_with_its_error(tmp_path: Path, text: str, problem: str) -> None:
    install(tmp_path / "site", {"bad.py": text}, {"holdfast.detectors": {"bad": "bad:build"}})

    done = agent(tmp_path / "site", 'plugins = ["bad"]', "--check-config")

    assert done.returncode == 2
    assert 'plug-in "bad" of holdfast.detectors: ' in done.stderr
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plugin_that_is_not_chosen_is_not_loaded(tmp_path: Path) -> None:
    points = {
        "holdfast.detectors": {"bad": "bad:build"},
        "holdfast.checkpoint_formats": {"b": "bad"},
    }
    install(tmp_path / "site", {"bad.py": "raise SystemExit(9)"}, points)

    assert agent(tmp_path / "site", "", "--check-config").returncode == 0


PROVIDER = """
from datetime import timedelta
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.providers.table import build_provider
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError
from tests.ports.fakes import FakeClock
import json, sys
try:
    provider = build_provider(parse_table(json.loads(sys.argv[1]), ProviderConfig), FakeClock())
except ConfigError as error:
    sys.exit(str(error))
print(provider._replace)
"""


def provider(site: Path, **table: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROVIDER, json.dumps(table)],
        capture_output=True, check=False, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip


def test_the_provider_of_the_guide_is_built_with_its_settings(site: Path) -> None:
    plugin = {"name": "acme-racks", "settings": {"url": "https://racks.example.com"}}

    assert provider(site, replace="plugin", plugin=plugin).returncode == 0

    refused = provider(site, replace="plugin", plugin={"name": "acme-racks"})
    assert 'plug-in "acme-racks" of holdfast.providers: its callable failed: Key' in refused.stderr
    assert "provider" not in provider(site, replace="none").stderr


def test_a_provider_that_lacks_a_method_is_refused_if_it_is_needed(tmp_path: Path) -> None:
    text = (
        "class Half:\n    def replace(self, node, token): ...\ndef build(settings): return Half()"
    )
    install(tmp_path / "site", {"half.py": text}, {"holdfast.providers": {"half": "half:build"}})

    both = provider(tmp_path / "site", replace="plugin", plugin={"name": "half"})
    one = provider(tmp_path / "site", replace="plugin", reboot="none", plugin={"name": "half"})

    assert "its provider has no method reboot(node, token)" in both.stderr
    assert one.returncode == 0


def test_the_checkpoint_format_of_the_guide_chooses_the_newest_complete_one(
    site: Path, tmp_path: Path
) -> None:
    for step, is_done in ((1, True), (2, True), (3, False)):
        folder = tmp_path / f"runs/acme-{step}"
        folder.mkdir(parents=True)
        (folder / "weights").write_text("x")
        if is_done:
            (folder / "DONE").touch()

    arguments = ("--format", "acme", "--dry-run", "--job-stopped", "-o", "json")
    done = run(site, "checkpoint", "verify", tmp_path / "runs", *arguments)

    output = json.loads(done.stdout)
    assert (output["format"], output["checkpoint"]) == ("acme", "acme-2")
    unknown = run(site, "checkpoint", "verify", tmp_path / "runs", "--format", "acne")
    assert unknown.returncode == 2
    assert 'checkpoint format "acne" not found; did you mean acme?' in unknown.stderr
    assert "safetensors, acme, or pattern:" in unknown.stderr


OWNER = """
class Machine:
    def __init__(self, node, number, replaces=""):
        self.node, self.id, self.boots, self.replaces = node, f"m-{number}", 0, replaces

    @property
    def boot(self):
        return f"{self.id}/{self.boots}"


class Owner:
    open = {}

    def __init__(self):
        self.url = f"https://racks.example.com/{len(self.open)}"
        self.open[self.url] = self
        self.tokens, self.all = set(), [Machine("rack-1", 1)]

    def machines(self):
        return tuple(self.all)

    def finish_orders(self):
        pass
"""

RACKS = """
from acme_holdfast.simulated import Machine, Owner


class Racks:
    def __init__(self, url):
        self.owner = Owner.open[url]

    def reboot(self, node, token):
        if token not in self.owner.tokens:
            self.owner.tokens.add(token)
            self.owner.all[0].boots += 1

    def replace(self, node, token):
        if not any(one.replaces == node.name for one in self.owner.all):
            self.owner.all.append(Machine("rack-2", 2, node.name))
"""


@pytest.mark.parametrize(
    ("bug", "failed"),
    [
        (("", ""), set()),
        (("tokens.add", "tokens.discard"), {"an_order_acts_once_however_often_it_is_given"}),
        (
            ("if not any(one.replaces == node.name for one in self.owner.all)", "if True"),
            {
                "a_node_has_one_replacement_however_many_are_ordered",
                "an_order_repeated_by_the_next_controller_gives_no_second_replacement",
            },
        ),
    ],
)
def test_the_contract_in_the_guide_finds_what_a_provider_does_wrong(
    site: Path, bug: tuple[str, str], failed: set[str]
) -> None:
    (site / "acme_holdfast/simulated.py").write_text(OWNER, encoding="utf-8")
    (site / "acme_holdfast/racks.py").write_text(RACKS.replace(*bug), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf", "test_racks.py"],
        capture_output=True, check=False, encoding="utf-8", cwd=site / "acme_holdfast",
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip

    found = set(re.findall(r"^FAILED .*::test_(\w+)", done.stdout, re.MULTILINE))
    assert (found, done.returncode) == (failed, 1 if failed else 0), done.stdout
    assert f"{4 - len(failed)} passed" in done.stdout


def test_every_public_name_exists_and_type_checkers_see_the_same_names() -> None:
    stub = Path(holdfast.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    typed = set(re.findall(r"import \w+ as (\w+)", stub)) | {"__version__"}

    assert typed == set(holdfast.__all__)
    assert all(getattr(holdfast, name) for name in holdfast.__all__)
    assert not hasattr(holdfast, "none_such")


def test_an_import_of_the_package_loads_nothing_else_of_it() -> None:
    code = "import holdfast, sys; print([n for n in sys.modules if n.startswith('holdfast.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert done.stdout == b"[]\n"
