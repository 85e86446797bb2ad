"""Messages between launchers and their coordinator, as JSON objects."""

from typing import Any, Final

from holdfast.decisions.launch_events import (
    Examined,
    Failed,
    Inspected,
    Joined,
    LogsRead,
    LossReported,
    NodeReported,
    Reported,
    Sampled,
    Stopped,
    Succeeded,
    Suspected,
)
from holdfast.decisions.launch_orders import Order
from holdfast.decisions.launch_runs import RunName
from holdfast.kit.serial import checked_value, to_plain

_EVENTS: Final[dict[str, type[Reported]]] = {
    "joined": Joined,
    "nodereported": NodeReported,
    "failed": Failed,
    "lossreported": LossReported,
    "suspected": Suspected,
    "inspected": Inspected,
    "logsread": LogsRead,
    "sampled": Sampled,
    "examined": Examined,
    "succeeded": Succeeded,
    "stopped": Stopped,
}


def event_message(event: Reported) -> dict[str, Any]:
    """Return the message for an event."""
    return {"event": type(event).__name__.lower(), "value": to_plain(event)}


def read_event(message: dict[str, Any]) -> Reported | None:
    """Return the event in a message; None if it has none.

    Raises:
        ValueError: the event is not valid.

    """
    kind = _EVENTS.get(str(message.get("event")))
    return None if kind is None else checked_value(kind, message.get("value"))


def order_message(order: Order) -> dict[str, Any]:
    """Return the message for an order."""
    return {"order": to_plain(order)}


def read_order(message: dict[str, Any]) -> Order | None:
    """Return the order in a message; None if it has none.

    Raises:
        ValueError: the order is not valid.

    """
    return checked_value(Order, message["order"]) if "order" in message else None


def run_message(run: RunName) -> dict[str, Any]:
    """Return the message for the name of a run."""
    return {"run": to_plain(run)}


def read_run(message: dict[str, Any]) -> RunName | None:
    """Return the name of the run in a message; None if it has none.

    Raises:
        ValueError: the name is not valid.

    """
    return checked_value(RunName, message["run"]) if "run" in message else None
