"""Restricts the sources of lifecycle scripts to configured prefixes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from holdfast.model.clusters import DesiredCluster

_AMBIGUOUS: Final = frozenset("%?#;\\*")
"""Characters that a URL parser, a shell or S3 may interpret, so that a source means another one."""

EXPECTED: Final = "s3://BUCKET[/PATH], file:///PATH or /PATH, without . and .. and without %?#;\\*"


def limited_to(
    prefixes: Sequence[str] | None, others: Callable[[DesiredCluster], Sequence[str]]
) -> Callable[[DesiredCluster], Sequence[str]]:
    """Objections to a cluster: sources that are not permitted, or else ``others``.

    Args:
        prefixes: permitted sources; all if None.
        others: further rejections. It may read the sources, so it gets permitted ones only.

    """
    if prefixes is None:
        return others
    return lambda cluster: list(source_rejections(cluster, prefixes)) or others(cluster)


def source_rejections(cluster: DesiredCluster, prefixes: Sequence[str]) -> Iterator[str]:
    """Groups whose lifecycle scripts come from elsewhere: one message for each."""
    permitted = [source_parts(one) for one in prefixes]
    for group in cluster.groups:
        scripts = group.made_of.scripts
        if scripts is None or group.is_going:
            continue
        parts = source_parts(scripts.source)
        if parts is None or not any(one == parts[: len(one)] for one in permitted if one):
            yield (
                f"InstanceGroups: {group.name}: LifeCycleConfig.SourceS3Uri: {scripts.source} is "
                f"not permitted; script_sources of this server: {', '.join(prefixes)}"
            )


def source_parts(source: str) -> tuple[str, ...] | None:
    """Bucket or root and the names below it; None for a source that can be read in several ways."""
    if not source.isprintable() or _AMBIGUOUS.intersection(source):
        return None
    if source.startswith("s3://"):
        root, path = "s3://", source.removeprefix("s3://")
    elif source.startswith(("file:///", "/")):
        root, path = "/", source.removeprefix("file://").removeprefix("/")
    else:
        return None
    names = path.removesuffix("/").split("/")
    return None if any(one in ("", ".", "..") for one in names) else (root, *names)
