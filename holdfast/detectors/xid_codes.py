"""What to do about each XID, the error codes of NVIDIA's driver: a table, one row for each code.

Sources. NVIDIA column: the immediate action of the XID catalogue
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html); where it names a workflow
that needs more than the log, a GPU reset stands for it (48, 74). HyperPod column: the actions that
HyperPod documents or was seen to take for 13, 31, 43, 64, 71, 73, 74, 79, 94 and 163, NVIDIA's
elsewhere. Two judgements of our own hold in both columns or the first:

- A catalogue action "restart the application" is ``APP`` unless the hardware is the cause (94): the
  application ended by its own fault, and its owner decides what becomes of it.
- For 63 the catalogue asks for nothing, but the row is remapped by the next reset only:
  ``REBOOT_WHEN_IDLE``. 167 to 169, 171 and 172 have no action in the catalogue yet; the HyperPod
  column reboots for them, as HyperPod does for codes that it does not name.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Verdict(Enum):
    """What a code means for the node."""

    REPLACE = auto()
    """The hardware is broken."""

    REBOOT = auto()
    RESET = auto()
    """The GPU must be reset, its jobs are lost."""

    REBOOT_WHEN_IDLE = auto()
    """Still works; a reset is needed sometime."""

    RESTART_APP = auto()
    """The hardware failed one application and is fit for the next."""

    APP = auto()
    """The application's own error."""

    ECHO = auto()
    """Follows from an earlier XID, which was judged by itself."""

    WARN = auto()
    NOTE = auto()
    ALERT = auto()
    """Nobody says what it means: tell people, keep the node."""

    LINK = auto()
    """The line says what the NVLink error was; see ``nvlink5``."""

    ACTION = auto()
    """The line says which action the driver wants."""


@dataclass(frozen=True, slots=True)
class XidCode:
    """One row: the code, what it means, and a verdict for each profile."""

    code: int
    name: str
    """A few words; the driver's own symbol for codes that it no longer uses."""

    hyperpod: Verdict
    nvidia: Verdict


_ROWS: Final = (
    XidCode(1, "FIFO_ERROR_FIFO_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(2, "FIFO_ERROR_SW_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(3, "FIFO_ERROR_UNK_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(4, "FIFO_ERROR_CHANNEL_BUSY", Verdict.ALERT, Verdict.ALERT),
    XidCode(5, "FIFO_ERROR_RUNOUT_OVERFLOW", Verdict.ALERT, Verdict.ALERT),
    XidCode(6, "FIFO_ERROR_PARSE_ERR", Verdict.ALERT, Verdict.ALERT),
    XidCode(7, "FIFO_ERROR_PTE_ERR", Verdict.ALERT, Verdict.ALERT),
    XidCode(8, "GPU stopped processing", Verdict.APP, Verdict.APP),
    XidCode(9, "GR_ERROR_INSTANCE", Verdict.ALERT, Verdict.ALERT),
    XidCode(10, "GR_ERROR_SINGLE_STEP", Verdict.ALERT, Verdict.ALERT),
    XidCode(11, "invalid or corrupted push buffer", Verdict.APP, Verdict.APP),
    XidCode(12, "GR_ERROR_SW_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(13, "graphics engine exception", Verdict.APP, Verdict.APP),
    XidCode(14, "FAKE_ERROR", Verdict.WARN, Verdict.WARN),
    XidCode(15, "SCANLINE_TIMEOUT", Verdict.ALERT, Verdict.ALERT),
    XidCode(16, "VBLANK_CALLBACK_TIMEOUT", Verdict.ALERT, Verdict.ALERT),
    XidCode(17, "PARAMETER_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(18, "BUS_MASTER_TIMEOUT_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(19, "DISP_MISSED_NOTIFIER", Verdict.ALERT, Verdict.ALERT),
    XidCode(20, "MPEG_ERROR_SW_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(21, "ME_ERROR_SW_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(22, "VP_ERROR_SW_METHOD", Verdict.ALERT, Verdict.ALERT),
    XidCode(23, "LOGGING_ENABLED", Verdict.ALERT, Verdict.ALERT),
    XidCode(24, "GR_SEMAPHORE_TIMEOUT", Verdict.ALERT, Verdict.ALERT),
    XidCode(25, "invalid or illegal push buffer", Verdict.APP, Verdict.APP),
    XidCode(26, "FIFO_ERROR_FBISTATE_TIMEOUT", Verdict.ALERT, Verdict.ALERT),
    XidCode(27, "VP_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(28, "VP2_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(29, "BSP_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(30, "BAD_ADDR_ACCESS", Verdict.ALERT, Verdict.ALERT),
    XidCode(31, "GPU memory page fault", Verdict.APP, Verdict.APP),
    XidCode(32, "invalid or corrupted push buffer", Verdict.APP, Verdict.APP),
    XidCode(33, "SEC_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(34, "MSVLD_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(35, "MSPDEC_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(36, "MSPPP_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(37, "driver firmware error", Verdict.WARN, Verdict.WARN),
    XidCode(38, "driver firmware watchdog timeout", Verdict.WARN, Verdict.WARN),
    XidCode(39, "copy engine 0 exception", Verdict.APP, Verdict.APP),
    XidCode(40, "copy engine 1 exception", Verdict.APP, Verdict.APP),
    XidCode(41, "copy engine 2 exception", Verdict.APP, Verdict.APP),
    XidCode(42, "VIC_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(43, "GPU stopped processing", Verdict.APP, Verdict.APP),
    XidCode(44, "graphics engine fault in a context switch", Verdict.WARN, Verdict.WARN),
    XidCode(45, "preemptive cleanup after an earlier error", Verdict.ECHO, Verdict.ECHO),
    XidCode(46, "GPU stopped processing", Verdict.RESET, Verdict.RESET),
    XidCode(47, "NVENC0_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(48, "double-bit ECC error", Verdict.RESET, Verdict.RESET),
    XidCode(49, "SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY", Verdict.ALERT, Verdict.ALERT),
    XidCode(50, "SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(51, "SILENT_RUNNING_STRESS_TEST_FAILURE", Verdict.ALERT, Verdict.ALERT),
    XidCode(52, "SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE", Verdict.ALERT, Verdict.ALERT),
    XidCode(53, "SILENT_RUNNING_TEMP_REDUCED_CLOCKING", Verdict.ALERT, Verdict.ALERT),
    XidCode(54, "auxiliary power not connected", Verdict.ALERT, Verdict.ALERT),
    XidCode(55, "SILENT_RUNNING_TEMPERATURE_READ_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(56, "DISPLAY_CHANNEL_EXCEPTION", Verdict.ALERT, Verdict.ALERT),
    XidCode(57, "FB_LINK_TRAINING_FAILURE_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(58, "FB_MEMORY_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(59, "PMU_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(60, "video processor exception", Verdict.APP, Verdict.APP),
    XidCode(61, "PMU_BREAKPOINT", Verdict.ALERT, Verdict.ALERT),
    XidCode(62, "internal micro-controller halt", Verdict.RESET, Verdict.RESET),
    XidCode(63, "row remapping pending", Verdict.REBOOT_WHEN_IDLE, Verdict.REBOOT_WHEN_IDLE),
    XidCode(64, "row remapping failed", Verdict.REPLACE, Verdict.RESET),
    XidCode(65, "NVENC1_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(66, "illegal access by the driver", Verdict.WARN, Verdict.WARN),
    XidCode(67, "illegal access by the driver", Verdict.WARN, Verdict.WARN),
    XidCode(68, "NVDEC0 exception", Verdict.APP, Verdict.APP),
    XidCode(69, "graphics engine class error", Verdict.APP, Verdict.APP),
    XidCode(70, "copy engine 3 error", Verdict.APP, Verdict.APP),
    XidCode(71, "copy engine 4 error", Verdict.REBOOT, Verdict.APP),
    XidCode(72, "copy engine 5 error", Verdict.APP, Verdict.APP),
    XidCode(73, "NVENC2_ERROR", Verdict.REBOOT, Verdict.ALERT),
    XidCode(74, "NVLink error", Verdict.REPLACE, Verdict.RESET),
    XidCode(75, "copy engine 6 error", Verdict.APP, Verdict.APP),
    XidCode(76, "copy engine 7 error", Verdict.APP, Verdict.APP),
    XidCode(77, "copy engine 8 error", Verdict.APP, Verdict.APP),
    XidCode(78, "vGPU start error", Verdict.ALERT, Verdict.ALERT),
    XidCode(79, "GPU has fallen off the bus", Verdict.REPLACE, Verdict.REBOOT),
    XidCode(80, "corrupted data sent to the GPU", Verdict.APP, Verdict.APP),
    XidCode(81, "VGA_SUBSYSTEM_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(82, "NVJPG0 error", Verdict.APP, Verdict.APP),
    XidCode(83, "NVDEC1 error", Verdict.APP, Verdict.APP),
    XidCode(84, "NVDEC2 error", Verdict.APP, Verdict.APP),
    XidCode(85, "copy engine 9 error", Verdict.APP, Verdict.APP),
    XidCode(86, "OFA0 exception", Verdict.APP, Verdict.APP),
    XidCode(87, "NVTELEMETRY_DRIVER_REPORT", Verdict.ALERT, Verdict.ALERT),
    XidCode(88, "NVDEC3 error", Verdict.APP, Verdict.APP),
    XidCode(89, "NVDEC4 error", Verdict.APP, Verdict.APP),
    XidCode(90, "LTC_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(91, "RESERVED_XID", Verdict.ALERT, Verdict.ALERT),
    XidCode(92, "high rate of single-bit ECC errors", Verdict.WARN, Verdict.WARN),
    XidCode(93, "InfoROM wear limit exceeded", Verdict.WARN, Verdict.WARN),
    XidCode(94, "contained memory error", Verdict.RESTART_APP, Verdict.RESTART_APP),
    XidCode(95, "uncontained memory error", Verdict.RESET, Verdict.RESET),
    XidCode(96, "NVDEC5 error", Verdict.APP, Verdict.APP),
    XidCode(97, "NVDEC6 error", Verdict.APP, Verdict.APP),
    XidCode(98, "NVDEC7 error", Verdict.APP, Verdict.APP),
    XidCode(99, "NVJPG1 error", Verdict.APP, Verdict.APP),
    XidCode(100, "NVJPG2 error", Verdict.APP, Verdict.APP),
    XidCode(101, "NVJPG3 error", Verdict.APP, Verdict.APP),
    XidCode(102, "NVJPG4 error", Verdict.APP, Verdict.APP),
    XidCode(103, "NVJPG5 error", Verdict.APP, Verdict.APP),
    XidCode(104, "NVJPG6 error", Verdict.APP, Verdict.APP),
    XidCode(105, "NVJPG7 error", Verdict.APP, Verdict.APP),
    XidCode(106, "SMBPBI test message", Verdict.NOTE, Verdict.NOTE),
    XidCode(107, "SMBPBI test message, silent", Verdict.NOTE, Verdict.NOTE),
    XidCode(108, "NVLINK_REMOTE_TRANSLATION_ERROR", Verdict.WARN, Verdict.WARN),
    XidCode(109, "context switch timeout", Verdict.RESET, Verdict.RESET),
    XidCode(110, "security fault", Verdict.RESET, Verdict.RESET),
    XidCode(111, "BUNDLE_ERROR_EVENT", Verdict.ALERT, Verdict.ALERT),
    XidCode(112, "DISP_SUPERVISOR_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(113, "DP_LT_FAILURE", Verdict.ALERT, Verdict.ALERT),
    XidCode(114, "HEAD_RG_UNDERFLOW", Verdict.ALERT, Verdict.ALERT),
    XidCode(115, "CORE_CHANNEL_REGS", Verdict.ALERT, Verdict.ALERT),
    XidCode(116, "WINDOW_CHANNEL_REGS", Verdict.ALERT, Verdict.ALERT),
    XidCode(117, "CURSOR_CHANNEL_REGS", Verdict.ALERT, Verdict.ALERT),
    XidCode(118, "HEAD_REGS", Verdict.ALERT, Verdict.ALERT),
    XidCode(119, "GSP RPC timeout", Verdict.RESET, Verdict.RESET),
    XidCode(120, "GSP error", Verdict.RESET, Verdict.RESET),
    XidCode(121, "C2C error", Verdict.WARN, Verdict.WARN),
    XidCode(122, "SPI_PMU_RPC_READ_FAIL", Verdict.ALERT, Verdict.ALERT),
    XidCode(123, "SPI_PMU_RPC_WRITE_FAIL", Verdict.ALERT, Verdict.ALERT),
    XidCode(124, "SPI_PMU_RPC_ERASE_FAIL", Verdict.ALERT, Verdict.ALERT),
    XidCode(125, "INFOROM_FS_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(126, "copy engine 10 error", Verdict.APP, Verdict.APP),
    XidCode(127, "copy engine 11 error", Verdict.APP, Verdict.APP),
    XidCode(128, "copy engine 12 error", Verdict.APP, Verdict.APP),
    XidCode(129, "copy engine 13 error", Verdict.APP, Verdict.APP),
    XidCode(130, "copy engine 14 error", Verdict.APP, Verdict.APP),
    XidCode(131, "copy engine 15 error", Verdict.APP, Verdict.APP),
    XidCode(132, "copy engine 16 error", Verdict.APP, Verdict.APP),
    XidCode(133, "copy engine 17 error", Verdict.APP, Verdict.APP),
    XidCode(134, "copy engine 18 error", Verdict.APP, Verdict.APP),
    XidCode(135, "copy engine 19 error", Verdict.APP, Verdict.APP),
    XidCode(136, "NVLink training failed", Verdict.RESET, Verdict.RESET),
    XidCode(137, "NVLink privilege error", Verdict.WARN, Verdict.WARN),
    XidCode(138, "DLA_ERROR", Verdict.ALERT, Verdict.ALERT),
    XidCode(139, "OFA1 error", Verdict.APP, Verdict.APP),
    XidCode(140, "unrecovered ECC error", Verdict.RESET, Verdict.RESET),
    XidCode(141, "CUDA fast path error", Verdict.WARN, Verdict.WARN),
    XidCode(142, "NVENC3 error", Verdict.ALERT, Verdict.ALERT),
    XidCode(143, "GPU initialization error", Verdict.RESET, Verdict.RESET),
    XidCode(144, "NVLink SAW error", Verdict.LINK, Verdict.LINK),
    XidCode(145, "NVLink RLW error", Verdict.LINK, Verdict.LINK),
    XidCode(146, "NVLink TLW error", Verdict.LINK, Verdict.LINK),
    XidCode(147, "NVLink TREX error", Verdict.LINK, Verdict.LINK),
    XidCode(148, "NVLink NVLPW_CTRL error", Verdict.LINK, Verdict.LINK),
    XidCode(149, "NVLink NETIR error", Verdict.LINK, Verdict.LINK),
    XidCode(150, "NVLink MSE error", Verdict.LINK, Verdict.LINK),
    XidCode(151, "key rotation error", Verdict.REBOOT, Verdict.REBOOT),
    XidCode(152, "DLA SMMU error", Verdict.WARN, Verdict.WARN),
    XidCode(153, "DLA timeout", Verdict.WARN, Verdict.WARN),
    XidCode(154, "GPU recovery action changed", Verdict.ACTION, Verdict.ACTION),
    XidCode(155, "NVLink error defined by software", Verdict.RESET, Verdict.RESET),
    XidCode(156, "resource retirement", Verdict.RESET, Verdict.RESET),
    XidCode(157, "resource retirement failed", Verdict.WARN, Verdict.WARN),
    XidCode(158, "GPU fatal timeout", Verdict.RESET, Verdict.RESET),
    XidCode(159, "CHI non-data error", Verdict.ALERT, Verdict.ALERT),
    XidCode(160, "channel retirement", Verdict.WARN, Verdict.WARN),
    XidCode(161, "channel retirement failed", Verdict.WARN, Verdict.WARN),
    XidCode(162, "power smoothing re-engaged", Verdict.NOTE, Verdict.NOTE),
    XidCode(163, "power smoothing disengaged", Verdict.WARN, Verdict.WARN),
    XidCode(164, "power smoothing: low lifetime", Verdict.NOTE, Verdict.NOTE),
    XidCode(165, "power smoothing: lifetime exhausted", Verdict.ALERT, Verdict.ALERT),
    XidCode(166, "NVLink traffic before encryption was set up", Verdict.ALERT, Verdict.ALERT),
    XidCode(167, "PCIe fatal timeout", Verdict.REBOOT, Verdict.ALERT),
    XidCode(168, "reduced GPU memory capacity", Verdict.REBOOT, Verdict.ALERT),
    XidCode(169, "SEC2 micro-controller halt", Verdict.REBOOT, Verdict.ALERT),
    XidCode(170, "NVLink interrupt in confidential computing", Verdict.ALERT, Verdict.ALERT),
    XidCode(171, "uncorrectable DRAM error", Verdict.REBOOT, Verdict.ALERT),
    XidCode(172, "uncorrectable SRAM error", Verdict.REBOOT, Verdict.ALERT),
    XidCode(173, "C2C fatal link failure", Verdict.ALERT, Verdict.ALERT),
    XidCode(174, "channel reset, process killed silently", Verdict.ALERT, Verdict.ALERT),
    XidCode(175, "memory subsystem error", Verdict.ALERT, Verdict.ALERT),
    XidCode(176, "PCIe correctable error", Verdict.ALERT, Verdict.ALERT),
)

XID_CODES: Final = {row.code: row for row in _ROWS}
"""Every code that NVIDIA has published, 1 to 176."""
