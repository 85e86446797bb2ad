"""Tokens of ``aws eks get-token``, verified for the Kubernetes API server.

Such a token is the presigned URL of a call of GetCallerIdentity, which is not made: the signature
proves who has signed it. The API server asks with a TokenReview (webhook token authentication).
"""

import base64
import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from holdfast.api.call import AwsLocation
from holdfast.api.identity import KUBERNETES, Keyring
from holdfast.api.kubernetes_cluster import KubernetesCluster, groups_of
from holdfast.api.problems import (
    AccessDenied,
    ApiProblem,
    BadSignature,
    NotReadable,
    UnknownKey,
    ValidationException,
)
from holdfast.api.sagemaker_model import Json
from holdfast.api.signature import (
    WINDOW,
    Signature,
    SignedRequest,
    require_match,
    signature_of,
)
from holdfast.api.sts import OPERATION, SIGNING_NAME, VERSION
from holdfast.kit.bounded_files import is_nested_deeply
from holdfast.ports.clock import Clock

LIFETIME: Final = timedelta(minutes=15)
"""Validity of a token, as in EKS; clients renew it after 14 minutes."""

REVIEW_LIMIT: Final = 20_000
"""Maximum size of a TokenReview in bytes. A token has about 600."""

_PREFIX: Final = "k8s-aws-v1."
_CLUSTER_HEADER: Final = "x-k8s-aws-id"
_VERSIONS: Final = ("authentication.k8s.io/v1", "authentication.k8s.io/v1beta1")
_SIGNATURE: Final = "X-Amz-Signature"
_PARAMETERS: Final = frozenset(
    {
        "Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date",
        "X-Amz-Expires", "X-Amz-SignedHeaders", _SIGNATURE,
    }
)  # fmt: skip
_PORTS: Final = {"http": 80, "https": 443}
_MALFORMED: Final = "the token is not one of: aws eks get-token"


class TokenReviews:
    """Answers TokenReviews; thread-safe."""

    def __init__(
        self, keys: Keyring, place: AwsLocation, cluster: KubernetesCluster, clock: Clock
    ) -> None:
        self._keys = keys
        self._place = place
        self._cluster = cluster
        self._clock = clock

    def review(self, body: bytes) -> Json:
        """Return a TokenReview with its status.

        Raises:
            NotReadable: the body is no TokenReview.

        """
        version, token = _review(body)
        try:
            status = {"authenticated": True, "user": self._user(token)}
        except ApiProblem as problem:
            status = {"authenticated": False, "error": str(problem)}
        return {"apiVersion": version, "kind": "TokenReview", "status": status}

    def _user(self, token: str) -> Json:
        now = self._clock.now()
        url, found = _parsed(token)
        self._refuse_scope(found)
        if not now - LIFETIME <= found.signed_at <= now + WINDOW:
            raise BadSignature(f"the token of {found.stamp} is not valid at {now.isoformat()}")
        secret = self._keys.secrets.get(found.key_id)
        if secret is None:
            raise UnknownKey("the token is signed with an unknown key")
        require_match(_request(url, self._cluster.name), found, secret)
        principal = self._keys.owner(found.key_id, now)
        principal.permit(KUBERNETES)
        if not principal.may_use(self._cluster.name):
            raise AccessDenied(
                f"{principal.person} is not authorized to use the cluster {self._cluster.name}; "
                "the clusters of the key do not include it"
            )
        return {
            "username": self._place.user_arn(principal.person),
            "uid": found.key_id,
            "groups": groups_of(principal),
        }

    def _refuse_scope(self, found: Signature) -> None:
        expected = (found.stamp[:8], self._place.region, SIGNING_NAME, "aws4_request")
        if found.scope != expected or set(found.signed_headers) != {"host", _CLUSTER_HEADER}:
            raise BadSignature(
                f"the token has the scope {'/'.join(found.scope)} and signs "
                f"{', '.join(found.signed_headers)}; expected {'/'.join(expected)} and host, "
                f"{_CLUSTER_HEADER}"
            )


def _review(body: bytes) -> tuple[str, str]:
    """API version and token of a TokenReview."""
    try:
        content: Any = None if is_nested_deeply(body) else json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict) and content.get("apiVersion") in _VERSIONS:
        spec = content.get("spec")
        token = spec.get("token") if isinstance(spec, dict) else None
        if isinstance(token, str):
            return str(content["apiVersion"]), token
    raise NotReadable(f"The body must be a TokenReview of {' or '.join(_VERSIONS)}")


def _parsed(token: str) -> tuple[SplitResult, Signature]:
    """URL of a token, and its signature."""
    text = token.removeprefix(_PREFIX)
    try:
        raw = base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
        url = urlsplit(raw.decode("ascii"))
        pairs = parse_qsl(url.query, strict_parsing=True, max_num_fields=len(_PARAMETERS))
        fields = dict(pairs)
    except ValueError:
        raise ValidationException(_MALFORMED) from None
    is_call = fields.get("Action") == OPERATION and fields.get("Version") == VERSION
    is_complete = len(pairs) == len(fields) and fields.keys() == _PARAMETERS
    if text == token or not is_call or not is_complete or url.path not in ("", "/"):
        raise ValidationException(_MALFORMED)
    return url, signature_of(
        fields["X-Amz-Credential"],
        fields["X-Amz-SignedHeaders"],
        fields[_SIGNATURE],
        fields["X-Amz-Date"],
    )


def _request(url: SplitResult, cluster: str) -> SignedRequest:
    """The signed request of a URL, with the header that binds it to a cluster."""
    query = "&".join(one for one in url.query.split("&") if not one.startswith(f"{_SIGNATURE}="))
    host = url.netloc.removesuffix(f":{_PORTS.get(url.scheme)}")  # not signed if it is the default
    return SignedRequest(
        method="GET", headers={"host": host, _CLUSTER_HEADER: cluster}, body=b"", query=query
    )
