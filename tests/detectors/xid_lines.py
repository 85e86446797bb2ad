"""Lines of NVIDIA's driver as they were seen in the wild, each with what it is."""

HYPERPOD_TESTS = {
    74: (
        "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error"
        " detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    ),
    73: (
        "NVRM: Xid (PCI:0000:b9:00): 73, pid=<unknown>, name=<unknown>, NVLink: fatal error"
        " detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    ),
    71: "NVRM: Xid (PCI:0000:b9:00): 71, pid=<unknown>, name=<unknown>, NVLink: fatal error",
}
"""What HyperPod's users append to /var/log/messages to try its agent."""

XIDS = [
    # line, code, device, remedy in the HyperPod profile
    (HYPERPOD_TESTS[74], 74, "PCI:0000:b9:00", "replace"),
    (HYPERPOD_TESTS[73], 73, "PCI:0000:b9:00", "reboot"),
    (HYPERPOD_TESTS[71], 71, "PCI:0000:b9:00", "reboot"),
    (
        "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        79, "PCI:0000:01:00", "replace",
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the"
        " bus.",
        79, "PCI:0000:05:00", "replace",
    ),
    (
        "NVRM: Xid (PCI:0000:00:05): 43, pid=1045242, name=pt_main_thread, Ch 00000008",
        43, "PCI:0000:00:05", "none",
    ),
    (
        "NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000",
        31, "PCI:0000:01:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:C1:0A): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000."
        " MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. Fault is of type"
        " FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
        31, "PCI:0000:c1:0a", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:4f:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp"
        " Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
        13, "PCI:0000:4f:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9)."
        " RST: No, D-RST: No",
        94, "PCI:0000:01:00", "restart-app",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 94, pid=7194, Contained: SM (0x1)."
        " RST: No, D-RST: No",
        94, "PCI:0000:01:00", "restart-app",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes,"
        " D-RST: No",
        95, "PCI:0000:01:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 63, pid=1896, Row Remapper: New row marked for remapping,"
        " reset gpu to activate.",
        63, "PCI:0000:01:00", "reboot",
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 64, Row Remapper Error: (0x00000002eebc4100) - All reserved"
        " rows for bank are remapped",
        64, "PCI:0000:01:00", "replace",
    ),
    (
        "NVRM: Xid (PCI:0000:07:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error"
        " detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
        74, "PCI:0000:07:00", "replace",
    ),
    (
        "NVRM: Xid (PCI:0000:07:00): 74, NVLink: failed to train link 3 to remote PCI:0000:08:00",
        74, "PCI:0000:07:00", "replace",
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal"
        " XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
        145, "PCI:0018:01:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0"
        " 0x0 0x0 0x0 0x0)",
        149, "PCI:0018:01:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x021425c6 0x0 0x0 0x0)",
        149, "PCI:0018:01:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 146, TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 02 (0x1 0x0)",
        146, "PCI:0018:01:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of"
        " waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC)"
        " (0x2081 0x4).",
        119, "PCI:0000:c0:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008,"
        " errorString CTX SWITCH TIMEOUT, Info 0x58005",
        109, "PCI:0000:c0:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 154, GPU recovery action changed from 0x0 (None) to 0x4"
        " (Drain and Reset)",
        154, "PCI:0000:c0:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 154, GPU recovery action changed from 0x4 (Drain and Reset)"
        " to 0x0 (None)",
        154, "PCI:0000:c0:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous"
        " Xid 149",
        45, "PCI:0000:c0:00", "none",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 136, NVLink: Link training failed for link 7(0x1, 0x2, 0x3,"
        " 0x4, 0x5, 0x6, 0x7)\n",
        136, "PCI:0000:c0:00", "reset-gpu",
    ),
    (
        "NVRM: Xid (PCI:0000:c0:00): 140, An uncorrectable ECC error detected (possible firmware"
        " handling failure) DRAM:1, LTC:0, MMU:0, PCIE:0",
        140, "PCI:0000:c0:00", "reset-gpu",
    ),
    ("NVRM: Xid (PCI:0000:c0:00): 48, DBE (double bit error)", 48, "PCI:0000:c0:00", "reset-gpu"),
    ("NVRM: Xid (PCI:0000:b3:00.0): 120, GSP task exception", 120, "PCI:0000:b3:00", "reset-gpu"),
    ("NVRM: Xid (PCI:0000:c0:00): 163, power smoothing", 163, "PCI:0000:c0:00", "none"),
    ("NVRM: Xid (PCI:0000:c0:00): 999, news", 999, "PCI:0000:c0:00", "none"),
    ("NVRM: Xid (PCI:00000000:86:00): 62, halt", 62, "PCI:0000:86:00", "reset-gpu"),
    ("NVRM: Xid (PCI:10000:86:00): 62, halt", 62, "PCI:10000:86:00", "reset-gpu"),
    ("NVRM: Xid (GPU-5096ae): 62, halt", 62, "GPU-5096ae", "reset-gpu"),
    ("NVRM: Xid (PCI:0000:c0:00): 62", 62, "PCI:0000:c0:00", "reset-gpu"),
]  # fmt: skip

OFF_BUS = [
    ("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "PCI:0000:91:00"),
    ("NVRM: GPU at 0000:03:00.0 has fallen off the bus.", "PCI:0000:03:00"),
    ("NVRM: GPU at PCI:0000:05:00: GPU has fallen off the bus.", "PCI:0000:05:00"),
    (
        "NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "NVRM: (PCI ID: 10de:2901) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands.",
        "PCI:0000:18:00",
    ),
    (
        "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1db4)\n"
        "NVRM: installed in this system has fallen off the bus and is not responding to commands.",
        "PCI:0000:18:00",
    ),
    (
        "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1db4)\n"
        "NVRM: installed in this system has fallen\n"
        "NVRM: off the bus and is not responding to commands.",
        "PCI:0000:18:00",
    ),
    ("NVRM: fallen off the bus and is not responding to commands.", ""),
]

NOTHING = [
    "NVRM: GPU at PCI:0000:9b:00: GPU-5096a2a6-6e9a-4a0d-9a0e-2d0e3a5bcb9d",
    "NVRM: GPU Board Serial Number: 1653720041234",
    "NVRM: GPU 0000:91:00.0: GPU serial number is 1653720041234.",
    "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2477)",
    "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:1db4)\n"
    "NVRM: installed in this system is not supported by the NVIDIA 595.45.04 driver release.",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.45.04",
    "NVRM: Xid (PCI:0000:b9:00): ",
    "NVRM: Xid (PCI:0000:b9:00): seventy-nine",
    "NVRM: Xid (PCI:0000:b9:00): 79x, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:b9:00): 0x4f, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:b9:00): 99999999999999999999, x",
    "NVRM: Xid (): 79, GPU has fallen off the bus.",
    "NVRM: Xid 79",
    "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:c0:00. The GPU likely needs to"
    " be reset.",
    "sshd[1]: NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus.",
    'python3[7]: log says "NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus."',
    "nvidia-smi: Xid 79 was seen, GPU has fallen off the bus",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error",
    "[drm] Xid (PCI:0000:b9:00): 79",
    "systemd[1]: Started NVRM: Xid watcher.",
    "oxide: Xid (PCI:0000:b9:00): 79",
    "",
]
