#!/usr/bin/env bash
# Compacts the memory of a virtual machine every 30 s while a process runs: tools/compact_memory.sh PID
#
# In a nested virtual machine, an access to a page took 30 us instead of 6 ns after some hours, because free memory was
# scattered in small pages, and the tests took more than twice as long. Compaction moves used pages together. It cannot
# move free pages that the kernel has reserved for each processor, so there are few of them meanwhile.
# Without root, or on a machine that is not virtual, this script does nothing.
set -euo pipefail
pid=${1:?usage: tools/compact_memory.sh PID}
exec >/dev/null 2>&1 9<"$0"

compact=/proc/sys/vm/compact_memory
per_cpu=/proc/sys/vm/percpu_pagelist_high_fraction
[ -w "$compact" ] && [ -w "$per_cpu" ] && grep -q '^flags.* hypervisor' /proc/cpuinfo || exit 0
flock --nonblock 9 || exit 0  # one is enough

before=$(cat "$per_cpu")
echo 100000 >"$per_cpu"
while kill -0 "$pid" && echo 1 >"$compact"; do
    sleep 30 9<&-
done
echo "$before" >"$per_cpu"
