"""Who reboots and replaces machines: the table ``provider`` of a configuration.

Loads nothing of any provider, so that a mistake is told without its SDK.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.kit.addresses import address_problem

CLUSTER: Final = re.compile(
    r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:cluster/[a-z0-9]{12}"
    r"|[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
)
"""SageMaker's ``ClusterNameOrArn``."""

PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
"""A word in braces; other braces, as those of JSON, mean nothing."""

PLACEHOLDERS: Final = ("action", "node", "provider_id", "token", "reason")
"""What an argument of a command may hold in braces."""


class ProviderName(StrEnum):
    """The providers there are."""

    NONE = "none"
    """Carries out nothing: every order is refused with what to do by hand."""

    EC2 = "ec2"
    """Reboots an instance, or terminates it; whatever launched it replaces it."""

    EC2_AUTOSCALING = "ec2-autoscaling"
    """Reboots an instance, or has its Auto Scaling group replace it."""

    SAGEMAKER = "sagemaker"
    """Has SageMaker HyperPod reboot or replace a node of a cluster."""

    KARPENTER = "karpenter"
    """Deletes the node's NodeClaim, so that Karpenter provisions another; cannot reboot."""

    CLUSTER_API = "cluster-api"
    """Has a MachineHealthCheck of Cluster API remediate the node's Machine; cannot reboot."""

    WEBHOOK = "webhook"
    """Posts each order, signed, to a URL."""

    SLURM_POWER = "slurm-power"
    """Has Slurm's power saving switch the node off and on: SuspendProgram, then ResumeProgram,
    which are to give it another machine; cannot reboot."""

    SLURM_REBOOT = "slurm-reboot"
    """Has Slurm run its RebootProgram; cannot replace."""

    COMMAND = "command"
    """Runs a command for each order."""

    PLUGIN = "plugin"
    """Uses the provider that an installed package registers in ``holdfast.providers``."""

    @property
    def can_reboot(self) -> bool:
        """Whether it carries out reboots as well as replacements."""
        return self not in (self.NONE, self.KARPENTER, self.CLUSTER_API, self.SLURM_POWER)

    @property
    def can_replace(self) -> bool:
        """Whether it carries out replacements."""
        return self not in (self.NONE, self.SLURM_REBOOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """How ``ec2``, ``ec2-autoscaling`` and ``sagemaker`` reach AWS.

    Credentials are found as boto3 finds them: in the environment, in a profile, from a web identity
    or from the instance.
    """

    region: str | None = None
    """That of the environment or of the profile if left out."""

    endpoint_url: str | None = None
    """Another address than that of AWS, such as a VPC endpoint."""

    connect_timeout: timedelta = timedelta(seconds=3)
    """For one of two tries. Short, as all nodes wait while an order is given."""

    read_timeout: timedelta = timedelta(seconds=10)
    """For one of two tries. AWS answers these calls within a second or two."""

    def __post_init__(self) -> None:
        _refuse(
            *_too_short(self, "connect_timeout", "read_timeout"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerSettings:
    """The HyperPod cluster of ``sagemaker``."""

    cluster: str
    """Its name or ARN."""

    def __post_init__(self) -> None:
        if CLUSTER.fullmatch(self.cluster) is None:
            raise ValueError(f"cluster: {self.cluster!r} is no name or ARN of a HyperPod cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiSettings:
    """The management cluster of ``cluster-api``."""

    kubeconfig: Path | None = None
    """Of the cluster that holds the Machines; the nodes' own cluster if left out."""

    context: str | None = None
    """The kubeconfig's current context if left out."""

    version: str = "v1beta1"
    """The version of ``cluster.x-k8s.io`` that it serves."""

    def __post_init__(self) -> None:
        if self.context and self.kubeconfig is None:
            raise ValueError("context: needs kubeconfig beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where ``webhook`` posts orders."""

    url: str
    """An ``https`` address; ``http`` only where it does not leave this machine."""

    secret_file: Path | None = None
    """Holds the key of the signatures. Read for each order, so that it can be changed."""

    secret_env: str = "HOLDFAST_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
    """The environment variable with the key, where there is no ``secret_file``."""

    ca_file: Path | None = None
    """PEM certificates to trust instead of the system's."""

    timeout: timedelta = timedelta(seconds=10)
    """For each wait for the receiver. It is to take an order, not to carry it out."""

    def __post_init__(self) -> None:
        _refuse(*_too_short(self, "timeout"), *_unfit_url(self.url))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What ``command`` runs, without a shell.

    Arguments may hold ``{action}``, ``{node}``, ``{provider_id}``, ``{token}`` and ``{reason}``;
    the same are in the environment as ``HOLDFAST_ACTION`` and so on.
    """

    reboot: tuple[str, ...] = ()
    """The program and its arguments."""

    replace: tuple[str, ...] = ()
    """The program and its arguments."""

    timeout: timedelta = timedelta(seconds=60)
    """How long it may take before it is killed. It is to order, not to wait for the machine."""

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
        _refuse(
            *_too_short(self, "timeout"),
            *(f"unknown placeholder {{{name}}}; known are {known}" for name in unknown),
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
    """Who carries out repairs, and what the chosen ones have to know."""

    replace: ProviderName = ProviderName.NONE
    """Who replaces machines."""

    reboot: ProviderName | None = None
    """Who reboots machines; the one that replaces them if left out and if it can."""

    aws: AwsSettings = field(default_factory=AwsSettings)
    sagemaker: SageMakerSettings | None = None
    cluster_api: ClusterApiSettings = field(default_factory=ClusterApiSettings)
    webhook: WebhookSettings | None = None
    command: CommandSettings = field(default_factory=CommandSettings)
    plugin: PluginSettings | None = None

    def __post_init__(self) -> None:
        _refuse(*self._unfit())

    @property
    def rebooter(self) -> ProviderName:
        """Who reboots machines."""
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
        for name, needed in (("sagemaker", "cluster"), ("webhook", "url"), ("plugin", "name")):
            if name in chosen.values() and getattr(self, name) is None:
                yield f'{name}: missing, expected a table with {needed}, as "{name}" is chosen'
        for verb, name in chosen.items():
            if name is ProviderName.COMMAND and not getattr(self.command, verb):
                yield f'command.{verb}: missing, expected an array, as "command" is chosen'


def _too_short(settings: object, *keys: str) -> Iterator[str]:
    for key in keys:
        if getattr(settings, key) <= timedelta(0):
            yield f"{key} must be longer than 0s, got {getattr(settings, key)}"


def _unfit_url(url: str) -> Iterator[str]:
    if problem := address_problem(url):
        yield f"url: {problem}"


def _refuse(*problems: str) -> None:
    if problems:
        raise ValueError("; ".join(problems))
