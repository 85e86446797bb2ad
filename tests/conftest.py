"""What holds for all tests.

With ``HOLDFAST_REQUIRE_ALL=1`` a test that would be skipped fails: nothing may be missing. Tests
marked ``gpu`` may still be skipped, because no installation brings a GPU.
"""

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from effort import LEAST, QUICK, examples, is_quick
from failures import BrokenFiles, ShownAtOnce
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.engines.control_plane import Built
from tests.engines.matrix import Matrix
from tools.control_plane import CannotBuild, provide
from tools.deepspeed_ops import EXTENSIONS

REQUIRE_ALL = os.environ.get("HOLDFAST_REQUIRE_ALL") == "1"

os.environ["TORCH_EXTENSIONS_DIR"] = str(EXTENSIONS)  # compiled by `make frameworks`
PYTHON_START = str(Path(__file__).parent / "engines/python_start")
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys((PYTHON_START, *filter(None, [os.environ.get("PYTHONPATH")])))
)

# No verdict may depend on how busy the machine is.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


PYTHON = "python"
SUITES = {
    "kubernetes": ("built",),
    "slurm": ("programs",),
    "console": ("browser",),
    "providers": ("moto",),
    "image": ("image_tools",),
    "tools": ("tools",),
    "local": ("run", "local_platform", "real_link", "samples", "launchers"),
    "frameworks": ("torch", "frameworks"),
}
"""The suites that need more than Python, each with the fixtures and markers of what it needs.

A test belongs to the first suite that has one of its fixtures, directly or through others, or one
of its markers, and to ``python`` if none has.
"""


def suite_of(item: pytest.Item) -> str:
    """The one suite that the test belongs to."""
    if item.get_closest_marker("smoke"):
        return PYTHON
    found = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
    return next((name for name, needs in SUITES.items() if found & {*needs}), PYTHON)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite", choices=[PYTHON, *SUITES], help="run the tests of one suite (default: all)"
    )
    parser.addoption(
        "--matrix",
        type=Path,
        metavar="DIR",
        help="run the tests of the fault matrix, and write their results to a directory",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    _take_signals()
    if config.getoption("suite") == PYTHON:
        os.environ[QUICK] = LEAST
    if is_quick():
        settings.register_profile("quick", settings.get_profile("calm"), max_examples=examples(200))
        settings.load_profile("quick")
    config.pluginmanager.register(BrokenFiles())
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(ShownAtOnce(terminal))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each process import another share of the test modules first.

    pytest rewrites and compiles a module that has no cached bytecode, 20 s for all of them. All
    processes collect in the same order and would compile each module at the same time.
    """
    config = session.config
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    gc.disable()  # until collection ends: next to nothing of it is garbage
    first, step = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(Path(__file__).parent.rglob("test_*.py"))[first::step]:
        if path.parent.joinpath("__init__.py").exists():
            continue  # its name is another
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collection reports it
            importlib.import_module(path.stem)


def _take_signals() -> None:
    """Undo what `nohup` and a shell's ``&`` do: programs that tests start would ignore signals."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    suites = {item: suite_of(item) for item in items}
    if wanted := config.getoption("suite"):
        config.hook.pytest_deselected(items=[one for one in items if suites[one] != wanted])
        items[:] = [item for item in items if suites[item] == wanted]
    if config.getoption("matrix"):
        items[:] = [item for item in items if "matrix" in getattr(item, "fixturenames", ())]
    _alternating(items, suites)


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collections: they live until the end."""
    gc.freeze()
    gc.enable()


def _alternating(items: list[pytest.Item], suites: Mapping[pytest.Item, str]) -> None:
    """Sort files: those with engines first, alternately one of few tests and one of many.

    A file of few tests with engines computes a lot, one of many waits a lot: together they keep
    the processors busy all the time. A long file that begins last would leave other processes
    without work; so those on real nodes, which take one process half an hour, begin first.
    """
    tests = Counter(item.path for item in items)
    by_size = sorted(tests, key=lambda path: tests[path])
    engines = {item.path for item in items if suites[item] != PYTHON}
    with_engines = [path for path in by_size if path in engines]
    turns = [
        path for both in zip(with_engines, reversed(with_engines), strict=True) for path in both
    ]
    rest = [path for path in by_size if path not in engines]
    place = {path: at for at, path in enumerate([*turns[: len(with_engines)], *rest])}
    items.sort(key=lambda item: ("realnodes" not in item.path.parts, place[item.path]))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the suites that were not run, and the command of each."""
    wanted = config.getoption("suite")
    if wanted is None:
        return
    terminalreporter.section("not run")
    commands = {PYTHON: "make test", **{name: f"make test-{name}" for name in SUITES}}
    for name in (name for name in commands if name != wanted):
        terminalreporter.line(f"{name:12}{commands[name]}")
    terminalreporter.line(f"{'all':12}make test-all")


@pytest.fixture
def matrix(request: pytest.FixtureRequest) -> Matrix:
    """Records results in the fault matrix."""
    test = f"{request.node.path.relative_to(request.config.rootpath)}::{request.function.__name__}"
    return Matrix(test, request.config.getoption("matrix"))


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An interpreter with the standard library alone, and no py-spy beside it."""
    program = tmp_path / "bare" / "python3"
    program.parent.mkdir()
    program.symlink_to(os.path.realpath(sys.executable))
    return program


@pytest.fixture(scope="session")
def image_tools() -> None:
    """Skip the test where images cannot be built."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    tools = ("buildah", "mmdebstrap", "syft")
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing or os.getuid() != 0:
        pytest.skip(f"images need root, and `make test-image`; missing: {missing}")


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
    "tests/kubernetes/test_recovery_killed.py": "minutes, beside the other tests of Kubernetes",
    "tests/kubernetes/": "a control plane",
    "tests/realnodes/": "the cluster of real nodes",
    "tests/adapters/host/test_kmsg.py": "the kernel's log",
    "tests/apps/test_agent.py": "the kernel's log",
    "tests/architecture/": "the syntax trees, parsed once",
    "tests/attack/test_forged_kernel_lines.py": "the kernel's log",
}
"""Tests that share something of which there is one, by the beginning of their path."""

WITHOUT_ENGINES = {"the kernel's log", "the syntax trees, parsed once"}
"""What tests of the suite ``python`` share."""


CONTROL_PLANES = 2
"""How many processes run tests of Kubernetes at a time, each on its own control plane."""


class InFiles(LoadScopeScheduling):
    """Gives whole files to the processes, and what is ``TOGETHER`` to one."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        shared = next((what for start, what in TOGETHER.items() if path.startswith(start)), path)
        if shared == TOGETHER["tests/kubernetes/"]:
            shared = f"{shared}, {crc32(path.encode()) % CONTROL_PLANES + 1} of {CONTROL_PLANES}"
        has_engines = self.config.getoption("suite") != PYTHON
        return shared if has_engines or shared in WITHOUT_ENGINES else path

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget files whose tests have ended: xdist counts all that it remembers at each event."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InFiles:
    return InFiles(config, log)


ENGINES = {"tests/kubernetes/": "control_plane", "tests/realnodes/": "whole_site"}
"""Fixtures of the session that keep a processor busy even when no test uses them."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any, nextitem: pytest.Item | None) -> Iterator[None]:
    """End engines after a teardown that failed, and before tests of others; they start again."""
    try:
        yield
    except Exception:
        _end_engines(item)
        raise
    if nextitem is None or "PYTEST_XDIST_WORKER" not in os.environ:
        return
    if any(item.nodeid.startswith(one) and not nextitem.nodeid.startswith(one) for one in ENGINES):
        _end_engines(item)


def _end_engines(item: Any) -> None:
    for start, engine in ENGINES.items():
        if item.nodeid.startswith(start):
            for fixture in item.session._fixturemanager.getfixturedefs(engine, item) or ():
                fixture.finish(item._request)


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
