"""Three ranks on gloo: rank 1 does not come, and the others wait as the first argument says."""

import atexit
import os
import pdb
import sys
import time

import torch
import torch.distributed as dist

HANG, STEPS = sys.argv[1], 30


class Slow:
    def __reduce__(self):
        never_comes()


def never_comes():
    time.sleep(600)


def asks_a_person():
    read, _ = os.pipe()
    pdb.Pdb(stdin=os.fdopen(read), stdout=sys.stdout, nosigint=True).set_trace()
    time.sleep(1)


def waits_for_the_handle():
    dist.all_reduce(torch.ones(3), async_op=True).wait()


def waits_in_its_group(pair):
    if dist.get_rank() == 0:
        dist.barrier(pair)
    else:
        dist.all_reduce(torch.ones(3))


def receives():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(3), src=1)
    elif dist.get_rank() == 1:
        dist.recv(torch.ones(3), src=2)
    else:
        dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo")
    pair = dist.new_group([0, 1])
    for step in range(STEPS):
        dist.all_reduce(torch.ones(3))
        with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a", encoding="utf-8") as file:
            file.write(f"{step}\n")
        time.sleep(0.05)
    if HANG == "receives":
        receives()
    elif dist.get_rank() != 1:
        {"handle": waits_for_the_handle, "group": lambda: waits_in_its_group(pair)}.get(
            HANG, dist.barrier
        )()
    elif HANG == "save":
        torch.save(Slow(), os.devnull)
    elif HANG == "debugger":
        asks_a_person()
    elif HANG == "exit":
        atexit.register(never_comes)
    else:
        never_comes()


if __name__ == "__main__":
    main()
