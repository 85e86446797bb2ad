"""The SPANK plugin runs in srun and slurmstepd, with the arguments and environment of any user."""

import shutil
import subprocess
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.slurm import install

PLUGIN = Path(install.__file__).parent / "spank" / "holdfast_auto_resume.c"
HOST = Path(__file__).with_name("spank_host.c")
LOCAL, REMOTE, ALLOCATOR = "1", "2", "3"
"""Values of ``spank_context_t`` in ``slurm/spank.h``."""

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/usr/include/slurm/spank.h").exists(),
    reason="no gcc with the headers of Slurm; install them: apt-get install gcc libslurm-dev",
)

TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=0xFF), max_size=40)
LONG = st.sampled_from(["", "%s%n%x", "a" * 5000, "a" * 4095, "a" * 4096, "\n" * 4097])
HOSTILE = TEXT | LONG
NAMES = ["SLURM_JOB_ID", "HOLDFAST_SUPERVISED", "PATH", "SLURM_CONF", "AUTO_RESUME"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("spank") / "spank_host"
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = subprocess.run(
        ["gcc", "-Wall", "-Wextra", "-g", *sanitizers, "-o", program, HOST, PLUGIN],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return program


def test_the_analyzer_of_the_compiler_finds_nothing(tmp_path: Path) -> None:
    flags = ("-fanalyzer", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
    done = subprocess.run(
        ["gcc", *flags, "-o", tmp_path / "plugin.so", PLUGIN],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@settings(max_examples=examples(300), deadline=None)
@given(
    context=st.sampled_from([LOCAL, REMOTE, ALLOCATOR, "0", "4", "5"]),
    option=st.sampled_from(["0", "1"]) | HOSTILE,
    supervisor=st.sampled_from(["", "/bin/true", "/nowhere", "a" * 5000]),
    arguments=st.lists(HOSTILE | st.just("--grace=10s"), max_size=4),
    environment=st.dictionaries(st.sampled_from(NAMES), HOSTILE | st.just("7")),
)
def test_no_argument_and_no_environment_makes_it_err(
    host: Path,
    context: str,
    option: str,
    supervisor: str,
    arguments: list[str],
    environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [host, context, option, f"supervisor={supervisor}", *arguments],
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert b"Sanitizer" not in done.stderr
    assert b"runtime error" not in done.stderr
    set_by_plugin = [one for one in done.stdout.splitlines() if one.startswith(b"AUTO_RESUME=")]
    assert set(set_by_plugin) <= {b"AUTO_RESUME=0", b"AUTO_RESUME=1"}
