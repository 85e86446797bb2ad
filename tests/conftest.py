"""What holds for all tests.

With ``HOLDFAST_REQUIRE_ALL=1`` a test that would be skipped fails: nothing may be missing. Tests
marked ``gpu`` may still be skipped, because no installation brings a GPU.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import QUICK
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.engines.control_plane import Built
from tools.control_plane import CannotBuild, provide

REQUIRE_ALL = os.environ.get("HOLDFAST_REQUIRE_ALL") == "1"

# No verdict may depend on how busy the machine is.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("calm"), max_examples=20)
settings.load_profile("calm")


PYTHON = "python"
SUITES = {
    "kubernetes": ("built",),
    "slurm": ("programs",),
    "console": ("browser",),
    "providers": ("moto",),
    "local": ("run",),
}
"""The suites that need more than Python, each with the fixtures that start what it needs.

A test belongs to the first suite that has one of its fixtures, directly or through others, and to
``python`` if none has.
"""


def suite_of(item: pytest.Item) -> str:
    """The one suite that the test belongs to."""
    if item.get_closest_marker("smoke"):
        return PYTHON
    fixtures = set(getattr(item, "fixturenames", ()))
    return next((name for name, starts in SUITES.items() if fixtures & {*starts}), PYTHON)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite", choices=[PYTHON, *SUITES], help="run the tests of one suite (default: all)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("suite") == PYTHON:
        os.environ[QUICK] = "1"
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("suite")
    if wanted is None:
        return
    config.hook.pytest_deselected(items=[item for item in items if suite_of(item) != wanted])
    items[:] = [item for item in items if suite_of(item) == wanted]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the suites that were not run, and the command of each."""
    wanted = config.getoption("suite")
    if wanted is None:
        return
    terminalreporter.section("not run")
    for name in [*(name for name in (PYTHON, *SUITES) if name != wanted), "all"]:
        terminalreporter.line(f"make test-{name}")


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Built:
    """Returns programs of the control plane by name: the only way of a test to a Go build.

    Builds what is missing; skips the test where that is not possible.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def paths(*names: str) -> dict[str, Path]:
        try:
            with capture.global_and_fixture_disabled():  # a build takes minutes: show its progress
                return provide(*names)
        except CannotBuild as error:
            pytest.skip(str(error))

    return paths


TOGETHER = {
    "tests/kubernetes/test_recovery_killed.py": "minutes, for whoever is free at the end",
    "tests/kubernetes/": "the control plane",
    "tests/adapters/host/test_kmsg.py": "the kernel's log",
    "tests/apps/test_agent.py": "the kernel's log",
}
"""Tests that share something of which there is one, by the beginning of their path."""


class InFiles(LoadScopeScheduling):
    """Gives whole files to the processes of ``make test-all``, and what is ``TOGETHER`` to one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return next((what for start, what in TOGETHER.items() if path.startswith(start)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InFiles:
    return InFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if item.get_closest_marker("gpu") is None:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although HOLDFAST_REQUIRE_ALL=1: {report.longrepr[2]}"
