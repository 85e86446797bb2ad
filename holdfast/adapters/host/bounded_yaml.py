"""YAML from people, with limited nesting and without objects. Needs PyYAML."""

from typing import Any

import yaml

from holdfast.kit.bounded_files import MAX_DEPTH


def load_yaml(text: str) -> Any:
    """Return the value of a YAML document; all scalars are text.

    Raises:
        ValueError: it is not valid YAML, or nested too deeply.

    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it makes no objects
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        hint = "; write \\\\ for \\, or single quotes" if "escape" in str(error.problem) else ""
        raise ValueError(f"{line}{error.problem}{hint}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class _Loader(yaml.BaseLoader):
    """YAML loader with limited nesting; scanning nested brackets takes quadratic time.

    BaseLoader keeps scalars as text, so that none becomes a date or a base-60 number.
    """

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= MAX_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MAX_DEPTH} levels")
        super().fetch_flow_collection_start(token)
