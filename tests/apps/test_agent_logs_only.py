from holdfast.apps.agent.config import AgentConfig
from holdfast.apps.agent.detectors import chosen_detectors
from holdfast.apps.agent.main import command_line_parser, load
from holdfast.detectors.contract import KERNEL_LOG, LOGS
from holdfast.detectors.table import required_samples


def test_an_agent_for_logs_only_takes_no_samples_and_misses_no_log_detector():
    everything = chosen_detectors(AgentConfig())

    chosen = chosen_detectors(AgentConfig(logs_only=True))

    assert required_samples(everything)
    assert required_samples(chosen) == {}
    assert [one.name for one in chosen] == [
        one.name for one in everything if not one.reads.isdisjoint({KERNEL_LOG, LOGS})
    ]


def test_the_command_line_asks_for_logs_only():
    assert load(command_line_parser().parse_args(["--logs-only"])).logs_only
    assert not load(command_line_parser().parse_args([])).logs_only
