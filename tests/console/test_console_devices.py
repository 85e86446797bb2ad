"""The devices on the page of a node."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from page_checks import violations
from playwright.sync_api import Page, expect
from written_runs import node

from tests.engines.recorded_devices import devices

SHOTS = Path(__file__).parents[2] / "build/console"


@pytest.fixture(scope="module")
def gpus(console) -> None:
    console.runs.add("gpus", nodes=(1, 2), ranks=(1, 2))
    read_at = datetime.now(UTC) - timedelta(minutes=3)
    console.runs.report("gpus", 1, hardware=devices(read_at))


def opened(visit, **look) -> Page:
    page = visit("ada", f"node/gpus/{node(1)}", **look)
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    return page


def test_every_device_is_listed_and_those_with_errors_stand_out(gpus, visit) -> None:
    page = opened(visit)
    card = page.locator(".devices")

    expect(card.get_by_role("heading", name="8 GPUs, NVIDIA H200")).to_be_visible()
    expect(card).to_contain_text(re.compile(r"driver 595\.45\.04, CUDA 13\.2, .*read 3m"))
    gpus = card.get_by_role("region", name="GPUs").locator("tbody tr")
    expect(gpus).to_have_count(8)
    expect(gpus.first).to_contain_text("PCI:0000:53:00")
    expect(gpus.first).to_contain_text("34 \u00b0C")
    expect(gpus.locator(".badge.tint-faulty")).to_have_count(1)
    links = card.get_by_role("region", name="NVLink errors").locator("tbody tr")
    expect(links).to_have_count(2)
    expect(links.last.locator(".badge.tint-faulty").last).to_have_text("14")
    ports = card.get_by_role("region", name="Network ports").locator("tbody tr")
    expect(ports).to_have_count(5)
    expect(ports.filter(has_text="rdmap80s0")).to_contain_text("rx drops 417")
    expect(ports.filter(has_text="mlx5_0")).to_contain_text("DOWN")
    expect(card.get_by_role("region", name="Memory controllers")).to_contain_text("MC0")
    card.screenshot(path=SHOTS / "devices-light.png")
    page.goto(page.url.replace(node(1), node(2)))
    expect(card).to_contain_text("Their agents read kernel logs only.")


def test_the_devices_are_for_everybody(gpus, visit) -> None:
    for look, options in {
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": {"width": 360, "height": 740}},
    }.items():
        page = opened(visit, **options)
        page.locator(".devices").screenshot(path=SHOTS / f"devices-{look}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert violations(page) == []
