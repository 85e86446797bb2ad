#!/usr/bin/env bash
# Compacts the memory of a virtual machine every 30 s while a process runs: tools/compact_memory.sh PID
#
# In a nested virtual machine, an access to a page took 30 us instead of 6 ns after some hours, because free memory was
# scattered in small pages, and the tests took more than twice as long. Compaction moves used pages together.
# Nothing is changed for good. Without root, or on a machine that is not virtual, this script does nothing.
set -euo pipefail
exec >/dev/null 2>&1 9<"$0"

trigger=/proc/sys/vm/compact_memory
[ -w "$trigger" ] && grep -q '^flags.* hypervisor' /proc/cpuinfo || exit 0
flock --nonblock 9 || exit 0  # one is enough

while kill -0 "$1" && echo 1 >"$trigger"; do
    sleep 30 9<&-
done
