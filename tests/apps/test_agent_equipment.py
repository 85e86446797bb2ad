"""What an agent expects of its node, and what it believes, from configuration and machine."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.agent.config import AgentConfig, DetectorSettings
from holdfast.apps.agent.detectors import chosen_detectors
from holdfast.apps.agent.equipment import identity_labels, node_equipment
from holdfast.apps.agent.probe import probe
from holdfast.apps.agent.session import AgentSession
from holdfast.detectors.contract import LogLine, Readings
from holdfast.detectors.corroborations import CORROBORATED
from holdfast.detectors.instance_types import Equipment
from holdfast.kit.config import parse_table
from holdfast.model.errors import ConfigError
from holdfast.model.health import Remedy
from holdfast.model.names import Reason

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)


def machine(root: Path, *, product: str = "", driver: str = "") -> AgentConfig:
    for name, text in (("sys/class/dmi/id/product_name", product),
                       ("proc/driver/nvidia/version", driver)):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text + "\n", encoding="utf-8")
    return AgentConfig(root=root)


def test_the_machine_says_what_it_is(tmp_path: Path) -> None:
    config = machine(tmp_path, product="p5.48xlarge")

    assert node_equipment(config, at_once=False) == Equipment(gpus=8, possible_efa=32, nvlinks=18)


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 2024", 535),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\n"
            "GCC version:  gcc version 13.3.0",
            580,
        ),
        ("", None),
        ("GCC version:  gcc version 13.3.0", None),
    ],
)
def test_the_driver_says_how_new_it_is(tmp_path: Path, text: str, driver: int | None) -> None:
    assert node_equipment(machine(tmp_path, driver=text), at_once=False).driver == driver


def test_the_labels_of_a_machine_are_those_configured_else_those_it_knows(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    assert identity_labels(AgentConfig(root=tmp_path)) == {}

    (folder / "board_asset_tag").write_text("i-0592464924bd45322\n", encoding="utf-8")
    config = parse_table({"root": str(tmp_path), "identity": {"cluster": "ml"}}, AgentConfig)

    assert identity_labels(config) == {"cluster": "ml", "instance_id": "i-0592464924bd45322"}


def test_the_configuration_wins_over_the_machine(tmp_path: Path) -> None:
    config = machine(tmp_path, product="p5.48xlarge")
    table = {"instance_type": "ml.trn1.32xlarge", "expected": {"gpus": 0, "efa": 8}}

    given = replace(parse_table(table, AgentConfig), root=tmp_path)
    part = replace(config, expected=given.expected)

    assert node_equipment(given, at_once=True) == Equipment(
        gpus=0, efa=8, possible_efa=8, neuron_devices=16, neuron_cores=32, at_once=True
    )
    assert node_equipment(part, at_once=False).gpus == 0


@pytest.mark.parametrize("product", ["Standard PC (Q35 + ICH9, 2009)", ""])
def test_of_another_machine_nothing_is_expected(tmp_path: Path, product: str) -> None:
    assert node_equipment(machine(tmp_path, product=product), at_once=False) == Equipment()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"expected": {"gpus": -1}}, "expected: gpus must not be negative, got -1"),
        ({"expected": {"gpu": 8}}, "expected.gpu: unknown key (did you mean expected.gpus?)"),
        (
            {"corroboration_window": "0s"},
            "corroboration_window must be longer than 0s, got 0s",
        ),
        (
            {"detectors": {"host-disk": {"needs_corroboration": True}}},
            "needs_corroboration: no other reading supports host-disk; supported are "
            + ", ".join(CORROBORATED),
        ),
        (
            {"instance_type": "p9.48xlarge"},
            "instance_type: unknown instance type p9.48xlarge; omit it and list the expected "
            "devices under [expected]",
        ),
    ],
)
def test_what_cannot_be_is_answered_with_what_can(table: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_table(table, AgentConfig)

    assert caught.value.problems == (problem,)


def log(root: Path, *lines: str) -> AgentConfig:
    (root / "kmsg").write_text("".join(f"4,1,2,-;{line}\n" for line in lines), encoding="utf-8")
    (root / "boot_id").write_text("b1\n", encoding="utf-8")
    return AgentConfig(
        root=root,
        command_path=str(root),
        kmsg=root / "kmsg",
        log_files=(),
        boot_id_file=root / "boot_id",
        instance_type="trn1.32xlarge",
    )


def test_a_probe_misses_devices_of_which_there_is_no_trace(tmp_path: Path) -> None:
    report = probe(log(tmp_path))

    assert [(one.reason, one.remedy) for one in report.faults] == [
        (Reason.NEURON_COUNT, Remedy.REBOOT)
    ]
    assert report.faults[0].message == "16 of 16 Neuron devices are missing"


NEURON = "NEURON_HW_ERR=DMA_ERROR instance-id=i-1 hostname=h nd-id=3 nc-id=0"
APP = "NVRM: Xid (PCI:0000:b9:00): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No"


def test_corroboration_is_requested_of_the_detectors_that_are_named(tmp_path: Path) -> None:
    config = log(tmp_path, NEURON, NEURON.replace("nd-id=3", "nd-id=4"))
    asking = replace(config, detectors={"neuron-log": DetectorSettings(needs_corroboration=True)})
    alone = replace(asking, instance_type=None)

    assert {one.remedy for one in probe(replace(config, instance_type=None)).faults} == {"replace"}
    assert probe(alone).faults == ()
    assert [one.code for one in probe(alone).suspects] == [None, None]
    # All sixteen devices are missing, which bears both out.
    assert len(probe(asking).faults) == 3


def test_only_what_touches_the_node_needs_a_witness() -> None:
    config = AgentConfig(
        detectors={"gpu-xid": DetectorSettings(needs_corroboration=True)},
        corroboration_window=timedelta(minutes=1),
    )
    lines = [
        LogLine(message=message, observed_at=NOW)
        for message in (APP, APP.replace(" 94,", " 95,"), APP.replace(" 94,", " 13,"))
    ]

    found = [
        one
        for detector in chosen_detectors(config)
        for one in detector.detect(Readings(kernel_log=tuple(lines)))
    ]

    assert [(one.code, one.corroborated_within) for one in found] == [
        (94, timedelta(0)),
        (95, timedelta(minutes=1)),
        (13, timedelta(0)),
    ]


def test_an_agent_reports_that_it_cannot_see_what_it_expects(tmp_path: Path) -> None:
    config = replace(log(tmp_path), report_dir=tmp_path / "run", instance_type="p5.48xlarge")
    session = AgentSession(config, (), lambda _: None)
    deadline = time.monotonic() + 20
    try:
        while True:
            session.step()
            report = ReportFiles(config.report_dir).last()
            if report is not None and "nvidia-smi" in {one.device for one in report.notices}:
                break
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        session.close()

    [blind] = [one for one in report.notices if one.device == "nvidia-smi"]
    assert blind.reason == Reason.SOURCE_FAILED
    assert blind.message.startswith("cannot evaluate nvidia-smi: cannot start nvidia-smi: No such")
