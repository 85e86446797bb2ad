"""Lines of logs that name a failure without a traceback."""

import re
from typing import Final

LINES: Final = re.compile(
    r"(?:\S{1,200}: error: (?:unrecognized arguments|the following arguments are required"
    r"|argument \S|ambiguous option|one of the arguments|invalid choice|no such option)"
    r"|\S{0,200}python[\d.]*: (?:can't open file|No module named|Error while finding module)"
    r"|Error: No such option|Error: Missing (?:option|argument) '"
    r"|(?:SyntaxError|IndentationError|TabError): "
    r"|\S{1,200}: error while loading shared libraries: "
    r"|ERROR: Unexpected bus error encountered in worker"
    r"|Bus error(?: \(core dumped\))?$|Segmentation fault(?: \(core dumped\))?$|Killed$"
    r"|Fatal Python error: |(?:.{1,120} )?(?:NCCL|\[\d{1,3}\] \S{1,60}:\d{1,5}) WARN "
    r".{0,200}(?:No route to host|IBV_WC_|unreachable|posix_fallocate failed"
    r"|Address family not supported|out of memory|[Mm]ismatched collective)"
    r"|Duplicate GPU detected|Failed to initialize NVML: |\[Errno \d{1,3}\] "
    r"|\[E socket\.cpp:\d+\] \[c10d\] The client socket has (?:timed out|failed to connect)"
    r"|THCudaCheck FAIL .{0,200}: invalid device ordinal|size mismatch for \S+: copying a param"
    r"|Missing key in checkpoint state_dict|Too many open files\. Communication with"
    r"|slurmstepd: error: (?:Detected \d+ oom|.{1,200} DUE TO (?:TIME|PREEMPTION|JOB REQUEUE))"
    r"|srun: error: .{1,200}: Out Of Memory$|\(raylet\) .{1,200}killed due to memory pressure"
    r"|.{0,160}Check failed: .{0,200}CU(?:DNN|BLAS)_STATUS"
    r"|socket(?:Start|Poll)Connect: Connect to .{1,200}(?:failed|returned)"
    r"|\[.{1,4000} exits with return code = -\d{1,2}$|srun: error: \S{1,200}: tasks? \S+: Killed"
    r"|.{0,80}: block: \[\d+,\d+,\d+\].{0,80}Assertion"
    r"|(?i:.{0,40}\bloss is (?:nan|inf|infinite)\b.{0,20}stopping)"
    r"|\[(?:E |rank|Rank).{0,120}Watchdog caught collective operation timeout)"
)
"""Lines that name a failure without a traceback; matched at the start of a line."""

BARE_EXCEPTION: Final = re.compile(
    r"(?:\[(?:rank|default)?\d{1,6}\]:\s?)?"
    r"((?:[A-Za-z_]\w{0,60}\.){0,8}(?:\w{1,60}Error|\w{0,60}(?:Exception|StackTrace)): .{1,2000})"
)
"""Exception without its traceback, of which the end of a log may have only the last line."""
