"""Registry of all checkpoint formats, in the order of detection."""

from collections.abc import Collection
from typing import Final

from holdfast.adapters.checkpoints import (
    accelerate,
    composer,
    dcp_directories,
    deepspeed,
    deepspeed_universal,
    dlrover,
    hf_trainer,
    lightning,
    megatron,
    nemo,
    neuronx,
    nvrx_local,
    orbax,
    ray_train,
    safetensors_model,
    torch_save,
    torchtitan,
)
from holdfast.adapters.checkpoints.contract import CheckpointFormat
from holdfast.adapters.checkpoints.pattern import PREFIX, USAGE, pattern_format
from holdfast.kit.plugins import load_plugin, plugin_error, plugin_names
from holdfast.model.errors import ConfigError
from holdfast.model.names import PluginGroup

ROWS: Final[tuple[CheckpointFormat, ...]] = (
    dlrover.FORMAT,
    nvrx_local.FORMAT,
    megatron.FORMAT,
    nemo.FORMAT,
    deepspeed.FORMAT,
    deepspeed_universal.FORMAT,
    hf_trainer.FORMAT,
    accelerate.FORMAT,
    lightning.FORMAT,
    torchtitan.FORMAT,
    ray_train.FORMAT,
    orbax.FORMAT,
    neuronx.FORMAT,
    composer.FORMAT,
    dcp_directories.FORMAT,
    torch_save.FORMAT,
    safetensors_model.FORMAT,
)
"""Specific formats come before general ones: a torchtitan step is a DCP checkpoint as well."""

_NEAREST: Final = 3
"""Maximum number of similar names in an error message."""

FORMATS: Final = {row.name: row for row in ROWS}


def format_named(name: str) -> CheckpointFormat:
    """Return the format called ``name``: of ``ROWS``, an installed package, or a ``pattern``.

    Raises:
        ConfigError: the format does not exist, the pattern is not valid, or the package that
            registers the format is broken.

    """
    if name in FORMATS:
        return FORMATS[name]
    if name.startswith(PREFIX):
        return pattern_format(name)
    group = PluginGroup.CHECKPOINT_FORMATS
    if name not in (registered := plugin_names(group)):
        raise _unknown(name, registered)
    found = load_plugin(group, name)
    if not isinstance(found, CheckpointFormat):
        raise plugin_error(group, name, f"expected a CheckpointFormat, got {type(found).__name__}")
    if found.name != name:
        raise plugin_error(group, name, f'its format is named "{found.name}"')
    return found


def _unknown(name: str, registered: Collection[str]) -> ConfigError:
    """Return the error for an unknown format, with the nearest names first."""
    near = _nearest(name, registered)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return ConfigError(
        f'checkpoint format "{name[:60]}" not found{hint} Formats:'
        f" {', '.join([*FORMATS, *sorted(registered)])}, or {USAGE} for other programs."
        " Other formats come from a package that registers them in entry-point group"
        f" {PluginGroup.CHECKPOINT_FORMATS}; install it into the environment of this process"
    )


def _nearest(name: str, registered: Collection[str]) -> list[str]:
    """Return formats whose name or title has the text or is in it, else those spelled alike."""
    import difflib  # noqa: PLC0415 - only a mistake needs it

    text = name.lower().replace("_", "-")
    titles = {row.name: row.title.lower() for row in ROWS} | dict.fromkeys(registered, "")
    alike = [one for one in titles if text and (text in one or one in text)]
    alike = alike or [one for one, title in titles.items() if text and text in title]
    return (alike or difflib.get_close_matches(text, titles))[:_NEAREST]
