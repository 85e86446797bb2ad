"""Writes docs/reference from the code; with ``--check`` it only reports which pages are stale.

Exit code: 0 if all pages are fresh (or were written), 1 if ``--check`` found a stale one.
"""

import ast
import inspect
import json
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from enum import Enum, IntEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final, get_args, get_type_hints

import api_tables
import checkpoint_damage
import command_pages
import fault_matrix
import matrix_html
import python_api
import reason_tables

import holdfast
from holdfast.adapters.checkpoints import table as checkpoint_formats
from holdfast.adapters.checkpoints.pattern import pattern_format
from holdfast.adapters.host.sources import SOURCES
from holdfast.adapters.kubernetes.nodes.agent_settings import AgentKubernetes
from holdfast.adapters.providers import settings as providers
from holdfast.adapters.slurm.install import doctor_rules
from holdfast.adapters.slurm.nodes.agent_settings import AgentSlurm
from holdfast.apps import exit_codes
from holdfast.apps.agent import config as agent_config
from holdfast.apps.checks import config as check_config
from holdfast.apps.controller import config as controller_config
from holdfast.apps.run import settings
from holdfast.decisions import doctor, policy
from holdfast.detectors import custom_rules, thresholds
from holdfast.detectors.contract import KERNEL_LOG, Detector
from holdfast.detectors.sxid_codes import SXID_NAMES
from holdfast.detectors.table import detectors
from holdfast.detectors.xid_codes import XID_CODES
from holdfast.kit.units import format_duration
from holdfast.model import events, names

PAGES: Final = Path(__file__).parents[1] / "docs" / "reference"
UNITS: Final = "Durations are written as `90s`, `15m` or `1h30m`, quotas as `20%` or as a count."
NOTE: Final = "<!-- Written by `make docs` from {}; change it there. -->"


def policy_page() -> Iterator[str]:
    """Every setting of the core with its default and the reason for it."""
    yield from _head("Policy", policy)
    yield UNITS
    for kind in (policy.RemediationPolicy, policy.JobPolicy):
        yield from ["", f"## {kind.__name__}", "", _prose(kind.__doc__), ""]
        yield from _knobs(kind)
    yield from ["", "## RecoveryMode", "", _prose(policy.RecoveryMode.__doc__), ""]
    yield from _enum_table(policy.RecoveryMode)


def configuration_page() -> Iterator[str]:
    """Every key of the file that ``holdfast run --config`` reads."""
    yield from _head("Configuration of a local run", settings)
    yield f"`holdfast run --config FILE` reads a TOML file with these tables. {UNITS}"
    kinds = get_type_hints(settings.RunConfig)
    for table in fields(settings.RunConfig):
        kind = kinds[table.name]
        yield from ["", f"## [{table.name}]", "", _prose(kind.__doc__), ""]
        yield from _knobs(kind)


def agent_config_page() -> Iterator[str]:
    """Every key of the file that ``holdfast agent --config`` reads."""
    yield from _head("Configuration of the agent", agent_config)
    yield f"`holdfast agent --config FILE` reads a TOML file with these keys and tables. {UNITS}"
    yield ""
    tables = {
        "expected": agent_config.ExpectedDevices,
        "identity": agent_config.IdentitySettings,
        "log": agent_config.LogSettings,
        "telemetry": agent_config.TelemetrySettings,
        "kubernetes": AgentKubernetes,
        "slurm": AgentSlurm,
    }
    yield from _knobs(agent_config.AgentConfig, without=tables)
    yield from ["", "## Rule files", "", _prose(custom_rules.__doc__), ""]
    yield "Each file of `rule_files` has a table `[rule.NAME]` with these keys for each rule."
    yield ""
    yield from _knobs(custom_rules.CustomRule)
    for title, kind in (("detectors.NAME", agent_config.DetectorSettings), *tables.items()):
        yield from ["", f"## [{title}]", "", _prose(kind.__doc__), ""]
        yield from _knobs(kind)
    known = detectors(agent_config.AgentConfig().profile)
    yield from ["", "## Names of detectors", ""]
    yield "A detector that needs root finds less, or nothing, if the agent is another user."
    yield ""
    rows = [(f"`{one.name}`", ", ".join(sorted(one.reads)), _needs_root(one)) for one in known]
    yield from _table(("Name", "Reads", "Needs root"), rows)


def _needs_root(detector: Detector) -> str:
    if KERNEL_LOG in detector.reads:
        return "with `source: kmsg`"
    return "yes" if any(SOURCES[one].needs_root for one in detector.reads & SOURCES.keys()) else ""


def check_config_page() -> Iterator[str]:
    """Every key of the file that the commands of ``holdfast check`` read."""
    yield from _head("Configuration of checks", check_config)
    yield "`holdfast check node`, `serve`, `pair` and `pairs` read a TOML file with `--config`."
    yield ""
    tables = {"expected": agent_config.ExpectedDevices, "thresholds": thresholds.Thresholds}
    yield from _knobs(check_config.CheckConfig, without=tables)
    yield from ["", "## [expected]", "", _prose(agent_config.ExpectedDevices.__doc__), ""]
    yield from _knobs(agent_config.ExpectedDevices)
    yield from ["", '## [thresholds."TYPE"]', "", _prose(thresholds.Thresholds.__doc__)]
    yield "`TYPE` is an instance type such as `p5.48xlarge`, or `default` for all. 0 disables a"
    yield from ["threshold.", ""]
    yield from _knobs(thresholds.Thresholds)
    yield from ["", "## Default thresholds", ""]
    yield "Their sources are in `holdfast/detectors/thresholds.py`."
    yield ""
    rows = [("all", thresholds.ANY_NODE), *thresholds.BY_FAMILY.items()]
    yield from _table(
        ("Family", "Thresholds"),
        [
            (name, ", ".join(f"`{key} = {value:g}`" for key, value in one.given.items()))
            for name, one in rows
        ],
    )


def providers_page() -> Iterator[str]:
    """Every provider, and every key of the table ``provider``."""
    yield from _head("Providers", providers)
    yield f"Set in the table `provider` of a configuration. {UNITS}"
    kinds = get_type_hints(providers.ProviderConfig)
    tables = [name for name in kinds if name not in ("replace", "reboot")]
    yield ""
    yield from _knobs(providers.ProviderConfig, without=tables)
    yield from ["", "## Names", "", *_enum_table(providers.ProviderName)]
    for table in tables:
        kind = next(one for one in (kinds[table], *get_args(kinds[table])) if is_dataclass(one))
        yield from ["", f"## [provider.{table}]", "", _prose(kind.__doc__), ""]
        yield from _knobs(kind)


def controller_config_page() -> Iterator[str]:
    """Every key of the file that ``holdfast controller --config`` reads."""
    yield from _head("Configuration of the controller", controller_config)
    yield (
        "`holdfast controller --config FILE` reads a TOML file with these keys and tables. The "
        "tables `nodes` and `jobs` are described in [Policy](policy.md), `provider` in "
        f"[Providers](providers.md). {UNITS}"
    )
    kind = controller_config.ControllerConfig
    yield ""
    yield from _knobs(kind, without=[*_tables(kind)])
    yield from _table_sections(kind, "", without=("nodes", "jobs", "provider"))


def _tables(kind: type) -> dict[str, type]:
    """The fields of a configuration that are tables themselves."""
    hints = get_type_hints(kind)
    found = {
        name: next((one for one in (hint, *get_args(hint)) if is_dataclass(one)), None)
        for name, hint in hints.items()
    }
    return {
        name: one for name, one in found.items() if one is not None and not hasattr(one, "parse")
    }


def _table_sections(kind: type, path: str, *, without: Container[str] = ()) -> Iterator[str]:
    for name, table in _tables(kind).items():
        if name not in without:
            yield from ["", f"## [{path}{name}]", "", _prose(table.__doc__), ""]
            yield from _knobs(table, without=[*_tables(table)])
            yield from _table_sections(table, f"{path}{name}.")


def checkpoints_page() -> Iterator[str]:
    """Every checkpoint format that is recognized."""
    yield from _head("Checkpoint formats", checkpoint_formats)
    yield "Formats are recognized by content; the first match in this table counts."
    yield "See [the guide](../howto/verify-checkpoints.md#formats) for how each was tested."
    yield ""
    titles = ("`--format`", "Written by", "Recognized by", "Complete when", "Loads", "Not detected")
    rows = (
        (
            f"`{row.name}`", row.title, row.recognized_by, row.complete_when, row.loads,
            row.not_detected,
        )
        for row in (*checkpoint_formats.ROWS, pattern_format("pattern:NAME_{step}"))
    )  # fmt: skip
    yield from _table(titles, rows)
    yield ""
    yield "The real framework wrote the checkpoints on which the others are tested. Tests build:"
    yield ""
    yield from (f"- `{name}`: {text}." for name, text in checkpoint_damage.HANDMADE.items())
    yield from ["", "## Damage", ""]
    yield "Tests damage the newest of several recorded checkpoints, which the framework wrote, keep"
    yield "the modification times, and verify with `--depth hashes`. There is no manifest of"
    yield "`holdfast checkpoint watch`, with which every changed byte is detected. Each file is one"
    yield "case. A recording is named by the framework and the kind of checkpoint."
    yield ""
    yield "Not noticed are:"
    yield ""
    yield "- bits in padding between records, in settings such as `trainer_state.json`, and in"
    yield "  safetensors; zeros in a tensor of a safetensors file;"
    yield "- a shard of NVRx that is missing while a replica of it is there, which is loaded;"
    yield "- bits and zeros in tensors that DLRover writes for FSDP, as bytes without a checksum;"
    yield "- bits of a DCP index that leave a consistent one, and of names and numbers in other"
    yield "  JSON files;"
    yield "- bits and zeros in compressed arrays of Orbax, outside of nodes with a checksum; its"
    yield "  data files that only a compressed manifest names, if missing; files of another step;"
    yield "- a file of another step that holds no step: shards of DCP (only by their modification"
    yield "  time), optimizers, schedulers and states of random numbers, safetensors and `.npz`."
    yield ""
    yield "The last column is the result of loading the chosen checkpoint with the real framework:"
    yield "`dcp_to_torch_save` (also for torchtitan and Megatron's torch_dcp), the same with"
    yield "`FsspecReader` for files of `FsspecWriter` (`dcp/fsspec`), Megatron-LM's"
    yield "`load_checkpoint` on two ranks (`megatron_lm`), Megatron-core's `dist_checkpointing`,"
    yield "DCP's `load` on two ranks (`own_index`), Ray Train's checkpoint manager, DLRover's"
    yield "checkpointer of FSDP, NVRx's local manager on four ranks, `torch.load` (also"
    yield "for Megatron's legacy format, Composer and DLRover, as they do), Transformers'"
    yield "`from_pretrained`, `torch.load` of its optimizer and scheduler, Accelerate's"
    yield "`load_state`, Lightning's loading of sharded directories, Orbax's `restore`, and"
    yield "DeepSpeed's `load_checkpoint` for universal ones,"
    yield "`get_fp32_state_dict_from_zero_checkpoint` for others."
    yield '"Yes" means that all values are those that were saved.'
    yield ""
    yield from _table(checkpoint_damage.TOTAL_TITLES, checkpoint_damage.totals())
    yield ""
    yield from _table(checkpoint_damage.TITLES, checkpoint_damage.rows())
    yield from _failed_saves()


def _failed_saves() -> Iterator[str]:
    """What is chosen after saves that failed."""
    yield from ["", "## Failed saves", ""]
    yield "Each round saves with the real framework until the process is killed (SIGKILL) at a"
    yield "random moment, or until the disk is full. `--depth hashes` then chooses a checkpoint. In"
    yield "every round the framework loaded it with the values that were saved, or none had been"
    yield "completed. A save to a temporary name that is renamed at its end leaves nothing to move"
    yield "away. The scripts are `killed_saves.py`, `killed_nvrx_saves.py` and `full_disk_saves.py`"
    yield "in `tests/checkpoints/frameworks`, such as `python killed_saves.py FOLDER ROUNDS KIND`."
    yield "If only the replica of an NVRx file is left, PyTorch reads it: NVRx needs CUDA for it."
    yield "Ray Train writes its list of checkpoints in place: a kill within that leaves an empty"
    yield "one, and a person has to choose. Its checkpoint manager runs without a cluster there."
    yield "Megatron-LM's torch_dist forks its processes there (with async, the persistent worker):"
    yield "its first save would otherwise start new interpreters, which takes seconds."
    yield ""
    yield from _table(checkpoint_damage.FAILED_SAVE_TITLES, checkpoint_damage.failed_saves())


def exit_codes_page() -> Iterator[str]:
    """How processes end."""
    yield from _head("Exit codes", exit_codes)
    yield from _enum_table(exit_codes.ExitCode)


def events_page() -> Iterator[str]:
    """Every event with its fields."""
    yield from ["# Events", "", NOTE.format("holdfast/model/events/"), "", _prose(events.__doc__)]
    for part in (events.nodes, events.checks, events.jobs, events.cluster):
        rows = [
            (f"`{kind.name}`", ", ".join(_field_names(kind)), _cell(kind.__doc__))
            for kind in _classes(part)
        ]
        yield from ["", f"## {_prose(part.__doc__).removesuffix('.')}", ""]
        yield from _table(("Event", "Fields", "When"), rows)


def names_page() -> Iterator[str]:
    """Every published name."""
    yield from ["# Published names", "", NOTE.format("holdfast/model/names/"), ""]
    yield _prose(names.__doc__)
    for part in (
        names.labels, names.job_annotations, names.conditions, names.reasons, names.causes,
        names.platforms,
    ):  # fmt: skip
        yield from ["", f"## {_prose(part.__doc__).removesuffix('.')}"]
        docs = _docs_in(ast.parse(inspect.getsource(part)).body)
        rows = [
            (f"`{key}`", f"`{value}`", docs[key]) for key, value in _constants(part) if key in docs
        ]
        if rows:
            yield from ["", *_table(("Constant", "Value", "Meaning"), rows)]
        for kind in _classes(part):
            yield from ["", f"### {kind.__name__}", "", _prose(kind.__doc__), ""]
            yield from _name_table(kind)


def _name_table(kind: type) -> Iterator[str]:
    if issubclass(kind, Enum):
        return _table(("Name", "Value"), [(f"`{one.name}`", f"`{one.value}`") for one in kind])
    keys = {key: one for key, one in vars(kind).items() if isinstance(one, property)}
    rows = [(f"`{getattr(kind(), key)}`", _cell(one.__doc__)) for key, one in keys.items()]
    return _table(("Key", "Meaning"), rows)


def slurm_doctor_page() -> Iterator[str]:
    """Every rule of the Slurm doctor."""
    yield from [
        "# Rules of the Slurm doctor",
        "",
        NOTE.format("holdfast/adapters/slurm/install/doctor_rules.py"),
        "",
    ]
    yield "`holdfast slurm doctor` reports which of these rules a cluster violates, with values. It"
    yield "exits with 1 if there is an error among them, with `--strict` also for warnings."
    yield from ["", *_enum_table(doctor.RuleSeverity), "", "## Rules", ""]
    rows = [(f"`{one.name}`", one.severity, one.why, one.remedy) for one in doctor_rules.RULES]
    yield from _table(("Rule", "Severity", "Why auto-resume would fail", "Remedy"), rows)


def reasons_page() -> Iterator[str]:
    """Every reason, and the evidence for it."""
    yield from [
        "# Reasons",
        "",
        NOTE.format("holdfast/detectors and holdfast/model/names/reasons.py"),
        "",
    ]
    yield "The meaning of each reason, the findings of the kernel log detectors for each message,"
    yield "and the findings of the other detectors. The last meanings are those of tests, of deep"
    yield "health checks and of the controller."
    docs = docs_under_names(names.Reason)
    if missing := [one.name for one in names.Reason if one.name not in docs]:
        sys.exit(
            f"holdfast/model/names/reasons.py: Reason without a docstring: {', '.join(missing)}"
        )
    rows = [(f"`{one.value}`", docs[one.name]) for one in names.Reason]
    yield from ["", "## Meanings", "", *_table(("Reason", "Meaning"), rows)]
    yield from ["", "## Kernel log messages", ""]
    yield from _table(reason_tables.LOG_TITLES, reason_tables.log_rows())
    yield from ["", "## XIDs", ""]
    yield "Reason and severity are those of the profile `hyperpod`; the sources are in the header"
    yield from ["of `holdfast/detectors/xid_codes.py`.", ""]
    yield from _table(reason_tables.XID_TITLES, reason_tables.xid_rows())
    yield from ["", "## Readings of devices and of the host", ""]
    yield "XIDs that DCGM's policies report are evaluated like those in the kernel log. A source"
    yield from ["that cannot be read is a notice, `SourceFailed`, without a remedy.", ""]
    yield from _table(reason_tables.STATE_TITLES, reason_tables.state_rows())


def console_meanings() -> Iterator[str]:
    """Module of the console's pages: the meaning of reasons, XIDs and SXids."""
    docs = docs_under_names(names.Reason)
    reasons = {one.value: docs[one.name].replace("`", "") for one in names.Reason}
    xids = {code: row.name for code, row in XID_CODES.items()}
    yield "// Written by `make reference` from holdfast/model/names and holdfast/detectors."
    for name, rows in (("REASONS", reasons), ("XIDS", xids), ("SXIDS", SXID_NAMES)):
        yield from ["", f"export const {name} = {json.dumps(rows, indent=2, ensure_ascii=False)};"]


def fault_matrix_page() -> Iterator[str]:
    """Faults, and what tests found of them on each platform."""
    yield from ["# Fault matrix", "", NOTE.format("tests/fault_matrix.json"), ""]
    yield "Each result was recorded by a test and is compared whenever the test runs. An attempt is"
    yield "one run of a job. Unless a row states otherwise, a job may use at least two restarts for"
    yield "faults of nodes and three for failures of the application. [A page](fault-matrix.html)"
    yield "has a column for each kind of job. Text in italics is the reason why there is no result."
    yield ""
    yield "- **one machine**: `holdfast run` with real processes."
    yield "- **Kubernetes operators**: a real control plane, scheduler and operator of each kind;"
    yield "  kubelets are simulated, so pods run no processes."
    yield "- **Kubernetes nodes**: real kubelets and containerd, and the chart; pods run processes."
    yield "- **Slurm**: real slurmctld and slurmd of these versions."
    yield from ["", "## Results", ""]
    yield from _table(("Part", "Fault", *fault_matrix.PLATFORMS), fault_matrix.overview())
    yield from ["", "## Jobs with launchers", ""]
    yield "The rung of the restart ladder that a job under `holdfast launch` used, and the seconds"
    yield "until the ranks of the next round had started; they import nothing. A hot spare is a"
    yield "launcher of the job that stands by; on another node, a launcher has yet to start."
    yield ""
    yield from _table(fault_matrix.RUNGS_TITLES, fault_matrix.rungs())
    yield from ["", "## Times", ""]
    yield "Load is that of the machine during the test, per core: 1 is a fully used machine, and"
    yield "times at a higher load are longer. `detected` is the start of the incident, `stopped`"
    yield "the end of the last rank, `resumed` the time at which all ranks of the next attempt run,"
    yield "`released` the end of the repair, `ordered` the order to the owner of the machines, and"
    yield "`joined` the time at which another machine accepts jobs. Others are named after what the"
    yield "test waits for."
    yield ""
    yield from _table(fault_matrix.SECONDS_TITLES, fault_matrix.seconds())
    yield from ["", "## Details", ""]
    yield "Results of Kubernetes with simulated kubelets omit `JobWaiting` if a spare node was"
    yield "available. If controllers are killed, causes and Events are not compared, because Events"
    yield "of a killed controller may be missing. `restarts` is Slurm's counter. A Slurm node that"
    yield "disappeared has the reason `NodeLost` or `NodeSilent`, depending on what was detected"
    yield from ["first; this table shows `NodeLost`.", ""]
    yield from _table(fault_matrix.TITLES, fault_matrix.details())


def python_api_page() -> Iterator[str]:
    """Every public name of the package."""
    yield from [
        "# Python API",
        "",
        NOTE.format("holdfast/__init__.py"),
        "",
        _prose(holdfast.__doc__),
    ]
    yield ""
    yield from python_api.lines(docs_under_names)


def sagemaker_api_page() -> Iterator[str]:
    """Every operation on clusters with its request fields."""
    yield from ["# SageMaker API", "", NOTE.format("holdfast/api/request_fields.py"), ""]
    yield from api_tables.lines(_table)


RENDERERS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "policy.md": policy_page,
    "configuration.md": configuration_page,
    "agent-config.md": agent_config_page,
    "controller-config.md": controller_config_page,
    "check-config.md": check_config_page,
    "providers.md": providers_page,
    "exit-codes.md": exit_codes_page,
    "events.md": events_page,
    "names.md": names_page,
    "reasons.md": reasons_page,
    "fault-matrix.md": fault_matrix_page,
    "fault-matrix.html": matrix_html.page,
    "checkpoints.md": checkpoints_page,
    "python-api.md": python_api_page,
    "sagemaker-api.md": sagemaker_api_page,
    "slurm-doctor.md": slurm_doctor_page,
    "../../holdfast/api/static/meanings.js": console_meanings,
    **command_pages.renderers(),
}


def _head(title: str, module: ModuleType) -> list[str]:
    source = module.__name__.replace(".", "/") + ".py"
    return [f"# {title}", "", NOTE.format(source), "", _prose(module.__doc__), ""]


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "---|" * len(titles)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _knobs(kind: type, without: Container[str] = ()) -> Iterator[str]:
    docs = docs_under_names(kind)
    rows = [
        (f"`{field.name}`", shown_default(field), docs[field.name])
        for field in fields(kind)
        if field.name not in without
    ]
    yield from _table(("Key", "Default", "Meaning"), rows)


def _enum_table(kind: type[Enum]) -> Iterator[str]:
    docs = docs_under_names(kind)
    shown = "Code" if issubclass(kind, IntEnum) else "Value"
    rows = [(f"`{one.value}`", f"`{one.name}`", docs.get(one.name, "")) for one in kind]
    yield from _table((shown, "Name", "Meaning"), rows)


def docs_under_names(kind: type) -> dict[str, str]:
    """The docstrings that stand under the names of a class and of the classes it extends."""
    docs: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("holdfast."):
            docs |= _own_docs_under_names(one)
    return docs


def _own_docs_under_names(kind: type) -> dict[str, str]:
    return _docs_in(ast.parse(inspect.getsource(kind)).body[0].body)


def _docs_in(body: list[ast.stmt]) -> dict[str, str]:
    docs = {}
    for named, doc in pairwise(body):
        target = named.targets[0] if isinstance(named, ast.Assign) else getattr(named, "target", "")
        if isinstance(target, ast.Name) and isinstance(doc, ast.Expr):
            docs[target.id] = _cell(ast.literal_eval(doc.value))
    return docs


def shown_default(field: Field[object]) -> str:
    """Return a default as a file would hold it; empty where leaving the key out means more."""
    is_left_out = field.default is None or field.default_factory is not MISSING
    return "" if is_left_out else f"`{_default(field.default)}`"


def _default(value: object) -> str:
    if value is MISSING:
        return "required"
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _prose(doc: str | None) -> str:
    return inspect.cleandoc(doc or "").replace("``", "`")


def _cell(doc: str | None) -> str:
    return _prose(doc).replace("\n\n", "<br>").replace("\n", " ")


def _classes(module: ModuleType) -> list[type]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def _constants(module: ModuleType) -> list[tuple[str, str]]:
    constants = [(name, value) for name, value in vars(module).items() if name.isupper()]
    return [(name, value) for name, value in constants if isinstance(value, str)]


def _field_names(kind: type) -> list[str]:
    return [f"`{field.name}`" for field in fields(kind)]


def main(argv: list[str]) -> int:
    """Write the pages, or check them."""
    stale = []
    for name, render in RENDERERS.items():
        page, text = PAGES / name, "\n".join(render()) + "\n"
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in argv:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    if "--check" in argv and stale:
        print(f"stale in docs/reference: {', '.join(stale)}; run: make reference")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
