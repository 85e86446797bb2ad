"""Settings of the providers that reboot and replace machines: the table ``provider``.

Imports no provider, so that a configuration can be validated without its SDK.
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, get_args, get_type_hints

from holdfast.kit.addresses import address_problem
from holdfast.kit.ranges import refuse, require_longer_than_zero, too_short

CLUSTER: Final = re.compile(
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:cluster/[a-z0-9]{12}"
    r"|[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
)
"""SageMaker's ``ClusterNameOrArn``."""

PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
"""A placeholder: a name in braces. Other braces, such as those of JSON, are literal."""

PLACEHOLDERS: Final = ("action", "node", "provider_id", "addresses", "token", "reason")
"""Names of placeholders in arguments of commands."""


class ProviderName(StrEnum):
    """Names of providers."""

    NONE = "none"
    """Rejects every order, with a message that describes the manual steps."""

    EC2 = "ec2"
    """Reboots or terminates an EC2 instance; whatever launched it must launch a replacement."""

    EC2_AUTOSCALING = "ec2-autoscaling"
    """Reboots an EC2 instance, or has its Auto Scaling group replace it."""

    SAGEMAKER = "sagemaker"
    """Calls SageMaker HyperPod to reboot or replace a cluster node."""

    KARPENTER = "karpenter"
    """Deletes the node's NodeClaim, so that Karpenter provisions another; cannot reboot."""

    CLUSTER_API = "cluster-api"
    """Marks the node's Machine for a Cluster API MachineHealthCheck; cannot reboot."""

    WEBHOOK = "webhook"
    """Posts each order, signed, to a URL."""

    SLURM_POWER = "slurm-power"
    """Powers the node down and up by Slurm power saving: SuspendProgram, then ResumeProgram, which
    must provide another machine; cannot reboot."""

    SLURM_REBOOT = "slurm-reboot"
    """Reboots with ``scontrol reboot`` (RebootProgram); cannot replace."""

    COMMAND = "command"
    """Runs a command for each order."""

    PLUGIN = "plugin"
    """Uses the provider that an installed package registers in ``holdfast.providers``."""

    @property
    def key(self) -> str:
        """Name of its module, and of its table in the configuration if it has one."""
        return self.replace("-", "_")

    @property
    def can_reboot(self) -> bool:
        """Whether it supports reboots."""
        return self not in (self.NONE, self.KARPENTER, self.CLUSTER_API, self.SLURM_POWER)

    @property
    def can_replace(self) -> bool:
        """Whether it supports replacements."""
        return self not in (self.NONE, self.SLURM_REBOOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """AWS connection of ``ec2``, ``ec2-autoscaling`` and ``sagemaker``.

    Credentials come from boto3's chain: environment, profile, web identity or instance profile.
    """

    region: str | None = None
    """AWS region; that of the environment or of the profile if omitted."""

    endpoint_url: str | None = None
    """Endpoint URL other than the public one, such as a VPC endpoint."""

    connect_timeout: timedelta = timedelta(seconds=3)
    """Connect timeout of each of two attempts. Short, because all nodes wait for an order."""

    read_timeout: timedelta = timedelta(seconds=10)
    """Read timeout of each of two attempts. AWS responds within one or two seconds."""

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "connect_timeout", "read_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerSettings:
    """HyperPod cluster of ``sagemaker``."""

    cluster: str
    """Name or ARN of the cluster."""

    def __post_init__(self) -> None:
        if CLUSTER.fullmatch(self.cluster) is None:
            raise ValueError(
                f"cluster: {self.cluster!r} is not the name or ARN of a HyperPod cluster"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiSettings:
    """Management cluster of ``cluster-api``."""

    kubeconfig: Path | None = None
    """Kubeconfig of the cluster that has the Machines; the nodes' own cluster if omitted."""

    context: str | None = None
    """Context in the kubeconfig; the current one if omitted."""

    version: str = "v1beta1"
    """Version of the API group ``cluster.x-k8s.io``."""

    def __post_init__(self) -> None:
        if self.context and self.kubeconfig is None:
            raise ValueError("context: requires kubeconfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Receiver of the orders of ``webhook``."""

    url: str
    """``https`` URL; ``http`` only for a loopback address."""

    secret_file: Path | None = None
    """File with the signing key. Read for each order, so it can be rotated."""

    secret_env: str = "HOLDFAST_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """Environment variable with the signing key, if there is no ``secret_file``."""

    ca_file: Path | None = None
    """PEM certificates to trust instead of those of the system."""

    timeout: timedelta = timedelta(seconds=10)
    """Timeout of each request. The receiver must accept the order, not complete it."""

    def __post_init__(self) -> None:
        refuse(*too_short(self, "timeout"), *_unfit_url(self.url))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """Programs of ``command``, started without a shell.

    Arguments may contain ``{action}``, ``{node}``, ``{provider_id}``, ``{addresses}``,
    ``{token}`` and ``{reason}``; the environment has the same as ``HOLDFAST_ACTION`` and so on.
    """

    reboot: tuple[str, ...] = ()
    """The program and its arguments."""

    replace: tuple[str, ...] = ()
    """The program and its arguments."""

    timeout: timedelta = timedelta(seconds=60)
    """Time after which the program is killed. It submits the order and returns."""

    def __post_init__(self) -> None:
        unknown = sorted(
            {
                found
                for argument in (*self.reboot, *self.replace)
                for found in PLACEHOLDER.findall(argument)
                if found not in PLACEHOLDERS
            }
        )
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        refuse(
            *too_short(self, "timeout"),
            *(f"unknown placeholder {{{name}}}; expected one of {known}" for name in unknown),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The installed package that ``plugin`` uses."""

    name: str
    """Name of its entry point in the group ``holdfast.providers``."""

    settings: dict[str, str] = field(default_factory=dict)
    """Passed to the plug-in; the keys are its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """Providers of repairs, and the settings of the chosen ones."""

    replace: ProviderName = ProviderName.NONE
    """Provider of replacements."""

    reboot: ProviderName | None = None
    """Provider of reboots; that of ``replace`` if omitted and if it can reboot."""

    aws: AwsSettings = field(default_factory=AwsSettings)
    sagemaker: SageMakerSettings | None = None
    cluster_api: ClusterApiSettings = field(default_factory=ClusterApiSettings)
    webhook: WebhookSettings | None = None
    command: CommandSettings = field(default_factory=CommandSettings)
    plugin: PluginSettings | None = None

    def __post_init__(self) -> None:
        refuse(*self._unfit())

    @property
    def rebooter(self) -> ProviderName:
        """Provider of reboots."""
        if self.reboot is not None:
            return self.reboot
        return self.replace if self.replace.can_reboot else ProviderName.NONE

    def _unfit(self) -> Iterator[str]:
        if self.reboot not in (None, ProviderName.NONE) and not self.rebooter.can_reboot:
            able = ", ".join(f'"{one}"' for one in ProviderName if one.can_reboot)
            yield f'reboot: "{self.reboot}" cannot reboot machines; these can: {able}'
        if self.replace is not ProviderName.NONE and not self.replace.can_replace:
            able = ", ".join(f'"{one}"' for one in ProviderName if one.can_replace)
            yield f'replace: "{self.replace}" cannot replace machines; these can: {able}'
        chosen = {"replace": self.replace, "reboot": self.rebooter}
        for name in sorted(set(chosen.values())):
            if getattr(self, name.key, self) is None:
                needed = " and ".join(_required_keys(name.key))
                yield f'{name.key}: missing, expected a table with {needed}, as "{name}" is chosen'
        for verb, name in chosen.items():
            if name is ProviderName.COMMAND and not getattr(self.command, verb):
                yield f'command.{verb}: missing, expected an array, as "command" is chosen'


def _required_keys(table: str) -> list[str]:
    """Return the keys without a default of an optional table of ``ProviderConfig``."""
    settings, _ = get_args(get_type_hints(ProviderConfig)[table])
    return [
        one.name
        for one in fields(settings)
        if one.default is MISSING and one.default_factory is MISSING
    ]


def _unfit_url(url: str) -> Iterator[str]:
    if problem := address_problem(url):
        yield f"url: {problem}"
