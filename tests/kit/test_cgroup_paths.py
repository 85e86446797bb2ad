"""Where the control group of a process is mounted."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.cgroup_paths import lineage, mounted

V1 = "33 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw"
CONTAINER = "900 890 0:26 /kubepods/pod1/c1 /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw"
SPACE = r"41 31 0:38 / /mnt/my\040groups rw,relatime - cgroup2 cgroup2 rw"
OUTSIDE = "41 31 0:38 /../.. /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("own", "mounts", "expected"),
    [
        ("/", [V1, UNIFIED], "/sys/fs/cgroup/unified"),
        ("/user.slice/a", [UNIFIED], "/sys/fs/cgroup/unified/user.slice/a"),
        ("/kubepods/pod1/c1", [CONTAINER], "/sys/fs/cgroup"),
        ("/kubepods/pod1/c1/own", [CONTAINER], "/sys/fs/cgroup/own"),
        ("/kubepods/pod1/c11", [CONTAINER], None),
        ("/kubepods/pod1/c11", [CONTAINER, UNIFIED], "/sys/fs/cgroup/unified/kubepods/pod1/c11"),
        ("/a", [SPACE], "/mnt/my groups/a"),
        ("/", [OUTSIDE], None),
        ("/../a", [UNIFIED], None),
        ("/a", [V1], None),
        ("/a", [], None),
    ],
)
def test_the_directory_of_a_control_group_depends_on_its_mount(
    own: str, mounts: list[str], expected: str | None
) -> None:
    assert mounted(own, "\n".join(mounts)) == (Path(expected) if expected else None)


def test_the_groups_above_end_at_the_mount() -> None:
    point = Path("/sys/fs/cgroup")
    new = [point / "own" / "a", point / "own", point]
    assert lineage("/kubepods/pod1/c1/own/a", "\n".join([V1, CONTAINER])) == new
    cpu = V1.replace("memory", "cpu,cpuacct")
    old = [Path("/sys/fs/cgroup/cpu,cpuacct") / one for one in ("job/step", "job", "")]
    assert lineage("/job/step", "\n".join([V1, cpu, UNIFIED]), "cpu") == old
    assert lineage("/job/step", V1, "cpu") == []
    assert lineage("/../step", cpu, "cpu") == []


@given(own=st.text(), mounts=st.text(alphabet="/ .-\\047acgroup2\n"))
def test_no_text_makes_it_fail_or_leave_the_mount(own: str, mounts: str) -> None:
    found = mounted(own, mounts)
    assert found is None or ".." not in Path(own).parts
