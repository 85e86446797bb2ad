"""``holdfast api``: serves the cluster API and creates its keys."""

import json
import secrets
import stat
import string
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.api.identity import AccessKey, Role
from holdfast.apps.api.config import ApiConfig
from holdfast.apps.cli.parameters import Address
from holdfast.apps.cli.where import Where, taken, where_options
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.config import load_config
from holdfast.model.errors import ConfigError

_LETTERS: Final = string.ascii_uppercase + "234567"
"""Characters of AWS access key IDs."""

_EPILOG: Final = """\b
Examples:
  holdfast api --new-key operate --name ada >> api.toml
  holdfast api --config api.toml                          the runs on this machine
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
    "--new-key",
    "role",
    type=click.Choice([role.value for role in Role]),
    help="Print a new API key with this role as TOML and exit.",
)
@click.option("--name", default="", help="With --new-key: name of the key's owner.")
@where_options("Show only this run.")
def api(
    *,
    config_file: Path | None,
    listen: ListenAddress | None,
    role: str | None,
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
        _print_key(_new_key(Role(role), name))
        return ExitCode.OK
    if config_file is None:
        raise click.UsageError(
            "--config is required: a file with API keys; create one with --new-key"
        )
    config = load_config(config_file, ApiConfig)
    if config_file.stat().st_mode & stat.S_IROTH:
        _report(
            f"{config_file} contains keys and is readable by all users; run: chmod 600 "
            f"{config_file}"
        )
    _serve(config if listen is None else replace(config, listen=listen), where)
    return ExitCode.OK


def _serve(config: ApiConfig, where: Where) -> None:
    try:
        session = import_module("holdfast.apps.api.session")
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{missing.name} is not installed, and the API requires it: pip install 'holdfast[api]'"
        ) from missing
    session.run_api(config, where, _report)


def _new_key(role: Role, name: str) -> AccessKey:
    """Return a key with random credentials."""
    letters = (secrets.choice(_LETTERS) for _ in range(16))
    return AccessKey(
        access_key_id=f"AKIA{''.join(letters)}",
        secret_access_key=secrets.token_urlsafe(30),
        role=role,
        name=name,
        token=secrets.token_urlsafe(30),
    )


def _print_key(key: AccessKey) -> None:
    click.echo("[[keys]]")
    click.echo(f'access_key_id = "{key.access_key_id}"')
    click.echo(f'secret_access_key = "{key.secret_access_key}"')
    click.echo(f'token = "{key.token}"')
    click.echo(f'role = "{key.role}"')
    if key.name:
        name = json.dumps(key.name, ensure_ascii=False)  # a JSON string is a valid TOML string
        click.echo(f"name = {name}")


def _report(message: str) -> None:
    click.echo(f"holdfast api: {message}", err=True)
