"""Ratings of XIDs, the error codes of NVIDIA's driver: one row for each code.

Sources. NVIDIA column: the immediate action of the XID catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html); where it names a workflow
that needs more than the log, a GPU reset stands for it (48, 74). HyperPod column: the actions that
HyperPod documents or was seen to take for 13, 31, 43, 64, 71, 73, 74, 79, 94 and 163, NVIDIA's
elsewhere. Two ratings of Holdfast's own apply in both columns or the first:

- A catalog action "restart the application" is ``APP`` unless the hardware is the cause (94): the
  application ended by its own fault, and its owner decides about a restart.
- For 63 the catalog has no action, but the row is remapped by the next reset only:
  ``REBOOT_WHEN_IDLE``. 167 to 169, 171 and 172 have no action in the catalog yet; the HyperPod
  column reboots for them, as HyperPod does for codes that it does not name.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class CodeAction(Enum):
    """Action for a code."""

    REPLACE = auto()
    """The hardware is broken."""

    REBOOT = auto()
    RESET = auto()
    """The GPU must be reset, its jobs are lost."""

    REBOOT_WHEN_IDLE = auto()
    """The GPU still works; it needs a reset eventually."""

    RESTART_APP = auto()
    """The hardware failed one application and can run the next."""

    APP = auto()
    """An error of the application itself."""

    ECHO = auto()
    """A consequence of an earlier XID, which has its own finding."""

    WARN = auto()
    NOTE = auto()
    ALERT = auto()
    """Undocumented: notify people, keep the node in service."""

    LINK = auto()
    """The line has the NVLink error; see ``nvlink5``."""

    ACTION = auto()
    """The line has the recovery action that the driver requests."""


@dataclass(frozen=True, slots=True)
class XidCode:
    """One row: the code, its meaning, and an action for each profile."""

    code: int
    name: str
    """Short meaning; the driver's own symbol for codes that it no longer uses."""

    hyperpod: CodeAction
    nvidia: CodeAction


_ROWS: Final = (
    XidCode(1, "FIFO_ERROR_FIFO_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(2, "FIFO_ERROR_SW_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(3, "FIFO_ERROR_UNK_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(4, "FIFO_ERROR_CHANNEL_BUSY", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(5, "FIFO_ERROR_RUNOUT_OVERFLOW", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(6, "FIFO_ERROR_PARSE_ERR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(7, "FIFO_ERROR_PTE_ERR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(8, "GPU stopped processing", CodeAction.APP, CodeAction.APP),
    XidCode(9, "GR_ERROR_INSTANCE", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(10, "GR_ERROR_SINGLE_STEP", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(11, "invalid or corrupted push buffer", CodeAction.APP, CodeAction.APP),
    XidCode(12, "GR_ERROR_SW_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(13, "graphics engine exception", CodeAction.APP, CodeAction.APP),
    XidCode(14, "FAKE_ERROR", CodeAction.WARN, CodeAction.WARN),
    XidCode(15, "SCANLINE_TIMEOUT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(16, "VBLANK_CALLBACK_TIMEOUT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(17, "PARAMETER_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(18, "BUS_MASTER_TIMEOUT_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(19, "DISP_MISSED_NOTIFIER", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(20, "MPEG_ERROR_SW_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(21, "ME_ERROR_SW_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(22, "VP_ERROR_SW_METHOD", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(23, "LOGGING_ENABLED", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(24, "GR_SEMAPHORE_TIMEOUT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(25, "invalid or illegal push buffer", CodeAction.APP, CodeAction.APP),
    XidCode(26, "FIFO_ERROR_FBISTATE_TIMEOUT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(27, "VP_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(28, "VP2_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(29, "BSP_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(30, "BAD_ADDR_ACCESS", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(31, "GPU memory page fault", CodeAction.APP, CodeAction.APP),
    XidCode(32, "invalid or corrupted push buffer", CodeAction.APP, CodeAction.APP),
    XidCode(33, "SEC_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(34, "MSVLD_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(35, "MSPDEC_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(36, "MSPPP_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(37, "driver firmware error", CodeAction.WARN, CodeAction.WARN),
    XidCode(38, "driver firmware watchdog timeout", CodeAction.WARN, CodeAction.WARN),
    XidCode(39, "copy engine 0 exception", CodeAction.APP, CodeAction.APP),
    XidCode(40, "copy engine 1 exception", CodeAction.APP, CodeAction.APP),
    XidCode(41, "copy engine 2 exception", CodeAction.APP, CodeAction.APP),
    XidCode(42, "VIC_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(43, "GPU stopped processing", CodeAction.APP, CodeAction.APP),
    XidCode(44, "graphics engine fault in a context switch", CodeAction.WARN, CodeAction.WARN),
    XidCode(45, "preemptive cleanup after an earlier error", CodeAction.ECHO, CodeAction.ECHO),
    XidCode(46, "GPU stopped processing", CodeAction.RESET, CodeAction.RESET),
    XidCode(47, "NVENC0_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(48, "double-bit ECC error", CodeAction.RESET, CodeAction.RESET),
    XidCode(
        49, "SILENT_RUNNING_CONSTANT_LEVEL_SET_BY_REGISTRY", CodeAction.ALERT, CodeAction.ALERT
    ),
    XidCode(50, "SILENT_RUNNING_LEVEL_TRANSITION_DUE_TO_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(51, "SILENT_RUNNING_STRESS_TEST_FAILURE", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(52, "SILENT_RUNNING_LEVEL_TRANS_DUE_TO_TEMP_RISE", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(53, "SILENT_RUNNING_TEMP_REDUCED_CLOCKING", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(54, "auxiliary power not connected", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(55, "SILENT_RUNNING_TEMPERATURE_READ_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(56, "DISPLAY_CHANNEL_EXCEPTION", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(57, "FB_LINK_TRAINING_FAILURE_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(58, "FB_MEMORY_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(59, "PMU_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(60, "video processor exception", CodeAction.APP, CodeAction.APP),
    XidCode(61, "PMU_BREAKPOINT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(62, "internal micro-controller halt", CodeAction.RESET, CodeAction.RESET),
    XidCode(63, "row remapping pending", CodeAction.REBOOT_WHEN_IDLE, CodeAction.REBOOT_WHEN_IDLE),
    XidCode(64, "row remapping failed", CodeAction.REPLACE, CodeAction.RESET),
    XidCode(65, "NVENC1_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(66, "illegal access by the driver", CodeAction.WARN, CodeAction.WARN),
    XidCode(67, "illegal access by the driver", CodeAction.WARN, CodeAction.WARN),
    XidCode(68, "NVDEC0 exception", CodeAction.APP, CodeAction.APP),
    XidCode(69, "graphics engine class error", CodeAction.APP, CodeAction.APP),
    XidCode(70, "copy engine 3 error", CodeAction.APP, CodeAction.APP),
    XidCode(71, "copy engine 4 error", CodeAction.REBOOT, CodeAction.APP),
    XidCode(72, "copy engine 5 error", CodeAction.APP, CodeAction.APP),
    XidCode(73, "NVENC2_ERROR", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(74, "NVLink error", CodeAction.REPLACE, CodeAction.RESET),
    XidCode(75, "copy engine 6 error", CodeAction.APP, CodeAction.APP),
    XidCode(76, "copy engine 7 error", CodeAction.APP, CodeAction.APP),
    XidCode(77, "copy engine 8 error", CodeAction.APP, CodeAction.APP),
    XidCode(78, "vGPU start error", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(79, "GPU has fallen off the bus", CodeAction.REPLACE, CodeAction.REBOOT),
    XidCode(80, "corrupted data sent to the GPU", CodeAction.APP, CodeAction.APP),
    XidCode(81, "VGA_SUBSYSTEM_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(82, "NVJPG0 error", CodeAction.APP, CodeAction.APP),
    XidCode(83, "NVDEC1 error", CodeAction.APP, CodeAction.APP),
    XidCode(84, "NVDEC2 error", CodeAction.APP, CodeAction.APP),
    XidCode(85, "copy engine 9 error", CodeAction.APP, CodeAction.APP),
    XidCode(86, "OFA0 exception", CodeAction.APP, CodeAction.APP),
    XidCode(87, "NVTELEMETRY_DRIVER_REPORT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(88, "NVDEC3 error", CodeAction.APP, CodeAction.APP),
    XidCode(89, "NVDEC4 error", CodeAction.APP, CodeAction.APP),
    XidCode(90, "LTC_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(91, "RESERVED_XID", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(92, "high rate of single-bit ECC errors", CodeAction.WARN, CodeAction.WARN),
    XidCode(93, "InfoROM wear limit exceeded", CodeAction.WARN, CodeAction.WARN),
    XidCode(94, "contained memory error", CodeAction.RESTART_APP, CodeAction.RESTART_APP),
    XidCode(95, "uncontained memory error", CodeAction.RESET, CodeAction.RESET),
    XidCode(96, "NVDEC5 error", CodeAction.APP, CodeAction.APP),
    XidCode(97, "NVDEC6 error", CodeAction.APP, CodeAction.APP),
    XidCode(98, "NVDEC7 error", CodeAction.APP, CodeAction.APP),
    XidCode(99, "NVJPG1 error", CodeAction.APP, CodeAction.APP),
    XidCode(100, "NVJPG2 error", CodeAction.APP, CodeAction.APP),
    XidCode(101, "NVJPG3 error", CodeAction.APP, CodeAction.APP),
    XidCode(102, "NVJPG4 error", CodeAction.APP, CodeAction.APP),
    XidCode(103, "NVJPG5 error", CodeAction.APP, CodeAction.APP),
    XidCode(104, "NVJPG6 error", CodeAction.APP, CodeAction.APP),
    XidCode(105, "NVJPG7 error", CodeAction.APP, CodeAction.APP),
    XidCode(106, "SMBPBI test message", CodeAction.NOTE, CodeAction.NOTE),
    XidCode(107, "SMBPBI test message, silent", CodeAction.NOTE, CodeAction.NOTE),
    XidCode(108, "NVLINK_REMOTE_TRANSLATION_ERROR", CodeAction.WARN, CodeAction.WARN),
    XidCode(109, "context switch timeout", CodeAction.RESET, CodeAction.RESET),
    XidCode(110, "security fault", CodeAction.RESET, CodeAction.RESET),
    XidCode(111, "BUNDLE_ERROR_EVENT", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(112, "DISP_SUPERVISOR_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(113, "DP_LT_FAILURE", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(114, "HEAD_RG_UNDERFLOW", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(115, "CORE_CHANNEL_REGS", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(116, "WINDOW_CHANNEL_REGS", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(117, "CURSOR_CHANNEL_REGS", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(118, "HEAD_REGS", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(119, "GSP RPC timeout", CodeAction.RESET, CodeAction.RESET),
    XidCode(120, "GSP error", CodeAction.RESET, CodeAction.RESET),
    XidCode(121, "C2C error", CodeAction.WARN, CodeAction.WARN),
    XidCode(122, "SPI_PMU_RPC_READ_FAIL", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(123, "SPI_PMU_RPC_WRITE_FAIL", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(124, "SPI_PMU_RPC_ERASE_FAIL", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(125, "INFOROM_FS_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(126, "copy engine 10 error", CodeAction.APP, CodeAction.APP),
    XidCode(127, "copy engine 11 error", CodeAction.APP, CodeAction.APP),
    XidCode(128, "copy engine 12 error", CodeAction.APP, CodeAction.APP),
    XidCode(129, "copy engine 13 error", CodeAction.APP, CodeAction.APP),
    XidCode(130, "copy engine 14 error", CodeAction.APP, CodeAction.APP),
    XidCode(131, "copy engine 15 error", CodeAction.APP, CodeAction.APP),
    XidCode(132, "copy engine 16 error", CodeAction.APP, CodeAction.APP),
    XidCode(133, "copy engine 17 error", CodeAction.APP, CodeAction.APP),
    XidCode(134, "copy engine 18 error", CodeAction.APP, CodeAction.APP),
    XidCode(135, "copy engine 19 error", CodeAction.APP, CodeAction.APP),
    XidCode(136, "NVLink training failed", CodeAction.RESET, CodeAction.RESET),
    XidCode(137, "NVLink privilege error", CodeAction.WARN, CodeAction.WARN),
    XidCode(138, "DLA_ERROR", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(139, "OFA1 error", CodeAction.APP, CodeAction.APP),
    XidCode(140, "unrecovered ECC error", CodeAction.RESET, CodeAction.RESET),
    XidCode(141, "CUDA fast path error", CodeAction.WARN, CodeAction.WARN),
    XidCode(142, "NVENC3 error", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(143, "GPU initialization error", CodeAction.RESET, CodeAction.RESET),
    XidCode(144, "NVLink SAW error", CodeAction.LINK, CodeAction.LINK),
    XidCode(145, "NVLink RLW error", CodeAction.LINK, CodeAction.LINK),
    XidCode(146, "NVLink TLW error", CodeAction.LINK, CodeAction.LINK),
    XidCode(147, "NVLink TREX error", CodeAction.LINK, CodeAction.LINK),
    XidCode(148, "NVLink NVLPW_CTRL error", CodeAction.LINK, CodeAction.LINK),
    XidCode(149, "NVLink NETIR error", CodeAction.LINK, CodeAction.LINK),
    XidCode(150, "NVLink MSE error", CodeAction.LINK, CodeAction.LINK),
    XidCode(151, "key rotation error", CodeAction.REBOOT, CodeAction.REBOOT),
    XidCode(152, "DLA SMMU error", CodeAction.WARN, CodeAction.WARN),
    XidCode(153, "DLA timeout", CodeAction.WARN, CodeAction.WARN),
    XidCode(154, "GPU recovery action changed", CodeAction.ACTION, CodeAction.ACTION),
    XidCode(155, "NVLink error defined by software", CodeAction.RESET, CodeAction.RESET),
    XidCode(156, "resource retirement", CodeAction.RESET, CodeAction.RESET),
    XidCode(157, "resource retirement failed", CodeAction.WARN, CodeAction.WARN),
    XidCode(158, "GPU fatal timeout", CodeAction.RESET, CodeAction.RESET),
    XidCode(159, "CHI non-data error", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(160, "channel retirement", CodeAction.WARN, CodeAction.WARN),
    XidCode(161, "channel retirement failed", CodeAction.WARN, CodeAction.WARN),
    XidCode(162, "power smoothing re-engaged", CodeAction.NOTE, CodeAction.NOTE),
    XidCode(163, "power smoothing disengaged", CodeAction.WARN, CodeAction.WARN),
    XidCode(164, "power smoothing: low lifetime", CodeAction.NOTE, CodeAction.NOTE),
    XidCode(165, "power smoothing: lifetime exhausted", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(166, "NVLink traffic before encryption was set up", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(167, "PCIe fatal timeout", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(168, "reduced GPU memory capacity", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(169, "SEC2 micro-controller halt", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(170, "NVLink interrupt in confidential computing", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(171, "uncorrectable DRAM error", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(172, "uncorrectable SRAM error", CodeAction.REBOOT, CodeAction.ALERT),
    XidCode(173, "C2C fatal link failure", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(174, "channel reset, process killed silently", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(175, "memory subsystem error", CodeAction.ALERT, CodeAction.ALERT),
    XidCode(176, "PCIe correctable error", CodeAction.ALERT, CodeAction.ALERT),
)

XID_CODES: Final = {row.code: row for row in _ROWS}
"""Every code that NVIDIA has published, 1 to 176."""
