"""``holdfast api``: serves the cluster API and creates its keys."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.api.identity import Role
from holdfast.apps.api.config import ApiConfig, load_api_config
from holdfast.apps.api.networks import ProxyNetwork
from holdfast.apps.api.new_keys import create_key
from holdfast.apps.cli.address_parameter import Address
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.listen_address import ListenAddress
from holdfast.apps.target import Where
from holdfast.model.errors import ConfigError

_EPILOG: Final = """\b
Examples:
  holdfast api --new-key operate --name ada --out api.toml
  holdfast api --config api.toml                     the runs on this machine
  holdfast api --config api.toml --platform kubernetes    a cluster
  aws --endpoint-url http://127.0.0.1:8470 sagemaker list-clusters

\b
Exit codes:
  0 ended by SIGTERM or Ctrl-C    2 invalid command line or configuration
"""


@click.command("api", epilog=_EPILOG)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML file with the API keys.",
)
@click.option("--listen", type=Address(), help="Address to listen on.  [default: 127.0.0.1:8470]")
@click.option(
    "--behind-proxy",
    "proxies",
    metavar="CIDR",
    multiple=True,
    help="Trust the headers X-Forwarded-For and X-Forwarded-Proto of reverse proxies with this IP "
    "address or network. May be repeated.",
)
@click.option(
    "--new-key",
    "role",
    type=click.Choice([role.value for role in Role]),
    help="Print a new API key with this role as TOML and exit; the console token goes to standard "
    "error.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --new-key: append the key to this file, and write the console token to a file "
    "beside it, both with mode 0600; print no secret.",
)
@click.option("--name", default="", help="With --new-key: name of the key's owner.")
@where_options("Serve only this run.  [default: all runs]")
def api(
    *,
    config_file: Path | None,
    listen: ListenAddress | None,
    proxies: tuple[str, ...],
    role: str | None,
    out: Path | None,
    name: str,
    **values: Any,
) -> int:
    """Serve SageMaker's cluster API and the web console for your own cluster.

    The AWS CLI, boto3 and HyperPod's tools work with it through --endpoint-url. Requests are signed
    with keys from the configuration. The API records each request; the controller or the run
    carries it out.
    """
    where = taken(values)
    if role is not None:
        create_key(Role(role), name, out)
        return ExitCode.OK
    if out is not None:
        raise click.UsageError("--out requires --new-key")
    if config_file is None:
        raise click.UsageError(
            "--config is required: a file with API keys; create one with --new-key"
        )
    config = load_api_config(config_file)
    config = replace(
        config,
        listen=listen or config.listen,
        behind_proxy=_networks(proxies) or config.behind_proxy,
    )
    config.refuse_readable()
    _serve(config, where)
    return ExitCode.OK


def _networks(texts: tuple[str, ...]) -> tuple[ProxyNetwork, ...]:
    try:
        return tuple(ProxyNetwork.parse(one) for one in texts)
    except ValueError as error:
        raise ConfigError(f"--behind-proxy: {error}") from error


def _serve(config: ApiConfig, where: Where) -> None:
    try:
        session = import_module("holdfast.apps.api.session")
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{missing.name} is not installed, and the API requires it: pip install 'holdfast[api]'"
        ) from missing
    session.run_api(config, where, _report)


def _report(message: str) -> None:
    click.echo(f"holdfast api: {message}", err=True)
