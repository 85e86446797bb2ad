"""Operations on the tags of clusters."""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.api.call import Call
from holdfast.api.paging import page
from holdfast.api.problems import ResourceLimitExceeded, ValidationException
from holdfast.api.sagemaker_model import Json

_MOST: Final = 50
"""Maximum number of tags of a resource, as in AWS."""

_RESERVED: Final = "aws:"


def checked_tags(before: Mapping[str, str], more: Iterable[Json]) -> dict[str, str]:
    """Tags with ``more`` added; an existing key gets the new value.

    Raises:
        ValidationException: a key is given twice, or reserved.
        ResourceLimitExceeded: the result exceeds the limit of tags.

    """
    given = list(more)
    keys = [one["Key"] for one in given]
    for key in keys:
        if key.lower().startswith(_RESERVED):
            raise ValidationException(f"Tags: the key {key} begins with {_RESERVED}, reserved")
        if keys.count(key) > 1:
            raise ValidationException(f"Tags: the key {key} is duplicated")
    tags = {**before, **{one["Key"]: one["Value"] for one in given}}
    if len(tags) > _MOST:
        raise ResourceLimitExceeded(f"{len(tags)} tags; a cluster may have {_MOST}")
    return tags


def add_tags(call: Call) -> Json:
    """See ``AddTags``."""
    more = call.request["Tags"]
    tags = call.require_creation().records.tag(
        _named(call), lambda before: checked_tags(before, more), call.requested("AddTags")
    )
    return {"Tags": _listed(_there(call, tags))}


def delete_tags(call: Call) -> Json:
    """See ``DeleteTags``; unknown keys are ignored."""
    keys = set(call.request["TagKeys"])
    tags = call.require_creation().records.tag(
        _named(call),
        lambda before: {key: value for key, value in before.items() if key not in keys},
        call.requested("DeleteTags"),
    )
    _there(call, tags)
    return {}


def list_tags(call: Call) -> Json:
    """See ``ListTags``."""
    name = _named(call)
    tags = call.creation.records.tags(name) if call.creation is not None else {}
    shown, token = page(
        _listed(tags), call.request, key=lambda one: (one["Key"], one["Key"]), descending=False
    )
    return {"Tags": shown, "NextToken": token}


def _listed(tags: Mapping[str, str]) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _named(call: Call) -> str:
    arn = call.request["ResourceArn"]
    for one in call.clusters:
        if call.place.arn(one.id) == arn:
            return one.name
    raise ValidationException(f"Cluster {arn} not found; only clusters support tags")


def _there(call: Call, tags: Mapping[str, str] | None) -> Mapping[str, str]:
    if tags is None:
        raise ValidationException(
            f"The cluster {call.request['ResourceArn']} was not created by this API and has no tags"
        )
    return tags
