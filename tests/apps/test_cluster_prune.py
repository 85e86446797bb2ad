"""What is left of deleted clusters, and ``holdfast clusters prune``."""

import contextlib

from holdfast.adapters.local.cluster_store import ClusterStore
from holdfast.adapters.local.layout import deleted_dir


def test_prune_removes_deleted_clusters_alone_and_nothing_in_a_dry_run(runs) -> None:
    runs.add("train")
    left = deleted_dir(runs.home, "fs", "0123456789ab")
    left.create()
    left.checkpoints.mkdir()
    (left.checkpoints / "step-1").write_bytes(b"x" * 2048)
    with contextlib.closing(ClusterStore(left.state, create=True)) as store:
        store.put_uid("0123456789ab")

    planned = runs.call("clusters", "prune", "--dry-run", "--output", "json").json
    assert [(one["cluster"], one["directory"]) for one in planned["found"]] == [
        ("fs", str(left.path))
    ]
    assert planned["found"][0]["size_bytes"] > 2048
    assert runs.call("clusters", "prune", "other", "--yes").code == 1
    assert runs.call("clusters", "prune", "--older-than", "1h", "--yes").code == 0
    assert left.state.exists()

    pruned = runs.call("clusters", "prune", "fs", "--yes")

    assert (pruned.code, pruned.out.startswith("fs: removed: ")) == (0, True)
    assert not left.path.exists()
    assert runs.directory("train").state.exists()
