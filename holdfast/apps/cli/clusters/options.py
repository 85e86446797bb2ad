"""Options that select a cluster API; the client is imported on the first call."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import click

from holdfast.adapters.local.layout import default_home, runs
from holdfast.apps.api.config import DEFAULT_URL
from holdfast.apps.cli.known_names import completion
from holdfast.apps.cli.output import (
    LISTS,
    RESULTS,
    OutputFormat,
    dry_run_option,
    output_option,
)
from holdfast.apps.cli.watch import watch_option
from holdfast.model.errors import BackendError, ConfigError

_URL_VARIABLE: Final = "AWS_ENDPOINT_URL_SAGEMAKER"
_COMPLETION_TIMEOUT_S: Final = 2.0
"""A person waits for the names while typing."""


class ClusterCalls(Protocol):
    """Calls one cluster API."""

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call an operation by its Python name, such as ``list_clusters``; returns the response.

        Raises:
            BackendError: the call was rejected, or the API is unreachable.
            ConfigError: there is no key to sign with.

        """
        ...

    def pages(self, operation: str, member: str, **request: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the items of a list, page by page; ``member`` of a page has its items."""
        ...


def _api_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``--config`` and ``--endpoint-url``; the command gets ``calls`` for them."""

    @functools.wraps(command)
    def called(*, config_file: Path | None, endpoint_url: str | None, **values: Any) -> Any:
        return command(calls=_calls_of(config_file, endpoint_url), **values)

    url = click.option(
        "--endpoint-url",
        envvar=_URL_VARIABLE,
        help=f"API endpoint URL.  [default: ${_URL_VARIABLE}, the address in --config, or"
        f" {DEFAULT_URL}]",
    )
    config = click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        envvar="HOLDFAST_API_CONFIG",
        help="Configuration file of holdfast api with an API key.  [default: "
        "$HOLDFAST_API_CONFIG, else the AWS credentials of the environment]",
    )
    return config(url(called))


def read_options(
    command: Callable[..., Any], *, formats: Sequence[OutputFormat] = LISTS
) -> Callable[..., Any]:
    """Add the options of a command that shows objects: ``calls``, ``watch``, ``output``."""
    return _api_options(watch_option(output_option(*formats)(command)))


def change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that changes clusters: ``dry_run``, ``calls``, ``output``."""
    return dry_run_option(_api_options(output_option(*RESULTS)(command)))


def _calls_of(config_file: Path | None, endpoint_url: str | None) -> ClusterCalls:
    """Return the calls of the selected API.

    Raises:
        ConfigError: the file is invalid, or a required package is not installed.

    """
    calls: ClusterCalls = _module().SignedCalls.of(config_file, endpoint_url)
    return calls


def _names(values: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the clusters of the API, or of this machine if it does not answer."""
    try:
        module = _module()
        calls = module.SignedCalls.of(
            values.get("config_file"), values.get("endpoint_url"), _COMPLETION_TIMEOUT_S
        )
        found = calls.names()
    except (BackendError, ConfigError):
        found = [run.name for run in runs(default_home()) if run.is_cluster]
    yield from found


cluster_names = completion(_names)
"""Names of the clusters of the selected API."""


def request_of(source: Path, operation: str) -> dict[str, Any]:
    """Return the request of an operation, such as ``CreateCluster``, in a file.

    Raises:
        ConfigError: the file is not a valid request.

    """
    request: dict[str, Any] = _module().checked_request(source, operation)
    return request


def _module() -> Any:
    try:
        return import_module("holdfast.apps.cli.clusters.calls")
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{missing.name} is not installed, and API calls require it: pip install "
            "'holdfast[api]'"
        ) from missing
