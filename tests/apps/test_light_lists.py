"""Lists of a Kubernetes cluster load only what they show: people wait for them."""

import subprocess
import sys

import pytest

NEVER = {"difflib", "hashlib", "shutil", "subprocess", "tempfile", "textwrap"}
OF_OTHERS = {"holdfast.adapters.local.layout", "holdfast.adapters.kubernetes.settings"}
OF_FEW_JOBS = {
    "holdfast.adapters.kubernetes.jobs.hang_rules",
    "holdfast.adapters.kubernetes.jobs.heartbeat_settings",
    "holdfast.decisions.crash_text",
    "holdfast.decisions.loss_settings",
}


@pytest.mark.parametrize(
    ("modules", "needless"),
    [
        (("holdfast.apps.cli.nodes.commands", "holdfast.apps.kubernetes.nodes"), OF_OTHERS),
        (("holdfast.apps.cli.jobs.commands", "holdfast.apps.kubernetes.jobs"), OF_FEW_JOBS),
    ],
)
def test_a_list_loads_nothing_that_it_does_not_show(
    modules: tuple[str, ...], needless: set[str]
) -> None:
    names = ", ".join(("holdfast.apps.main", "holdfast.apps.cli.main", *modules))
    show = f"import sys, {names}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, check=True, encoding="utf-8"
    )

    assert (NEVER | needless) & set(done.stdout.split()) == set()
