"""Lists of a Kubernetes cluster load only what they show: people wait for them."""

import subprocess
import sys

import pytest

NEVER = {"difflib", "hashlib", "shutil", "subprocess", "tempfile", "textwrap", "yaml"}
OF_OTHERS = {
    "holdfast.adapters.kubernetes.settings",
    "holdfast.adapters.local.layout",
    "holdfast.model.incidents",
    "holdfast.model.node_checks",
}
OF_FEW_JOBS = {
    "holdfast.adapters.host.log_rule_text",
    "holdfast.adapters.kubernetes.jobs.heartbeat_settings",
    "holdfast.decisions.crash_text",
    "holdfast.decisions.loss_settings",
    "holdfast.model.job_views",
    "holdfast.model.requests",
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
