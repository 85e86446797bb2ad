"""Kubernetes API calls of node providers; raises the errors of a ``NodeProvider``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.errors import (
    ApiError,
    Forbidden,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.providers.kubernetes_api import Json, ObjectKind
from holdfast.adapters.providers.orders import OwnerUnreachable
from holdfast.model.errors import BackendError, ConfigError, ProviderError

_UNREACHABLE_PAUSE: Final = timedelta(seconds=10)
"""Retry interval; an API server restarts within a minute."""

_OBJECT_MISSING: Final = "NotFound"
"""Reason of a 404 for an object; a 404 for a path that is not served has none."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Clusters:
    """The ``OpenCluster`` of a controller.

    Connects to other clusters than its own anew for each call: orders are hours apart, and the
    kubeconfig and its token may change meanwhile.
    """

    own: Api
    connect: Callable[[Server], Api]

    def __call__(self, kubeconfig: Path | None, context: str) -> "ProviderCalls":
        """See ``OpenCluster``."""
        if kubeconfig is None:
            return ProviderCalls(lambda: nullcontext(self.own))
        try:
            with self._reached(kubeconfig, context):
                pass
        except ProviderError as error:
            raise ConfigError(f"provider: {error}") from error
        return ProviderCalls(lambda: self._reached(kubeconfig, context))

    @contextmanager
    def _reached(self, kubeconfig: Path, context: str) -> Iterator[Api]:
        try:
            api = self.connect(find_server(kubeconfig, context))
        except ConfigError as error:
            raise ProviderError(f"cannot connect to the cluster: {error}") from error
        with closing(api):
            yield api


class ProviderCalls:
    """The ``KubernetesApi`` of one cluster."""

    def __init__(self, reached: Callable[[], AbstractContextManager[Api]]) -> None:
        self._reached = reached

    def find(self, kind: ObjectKind, name: str, namespace: str = "") -> Json | None:
        """See ``KubernetesApi.find``."""
        path = kind.path(name, namespace)
        return self._call("get", kind, lambda api: api.get(path))

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[Json]:
        """See ``KubernetesApi.list``."""
        path = kind.path(namespace=namespace)
        return self._call("list", kind, lambda api: [*api.list(path)]) or []

    def patch(self, kind: ObjectKind, name: str, namespace: str, body: Json) -> None:
        """See ``KubernetesApi.patch``."""
        path = kind.path(name, namespace)
        self._call("patch", kind, lambda api: api.patch(path, dict(body)))

    def delete(self, kind: ObjectKind, name: str) -> None:
        """See ``KubernetesApi.delete``."""
        self._call("delete", kind, lambda api: api.delete(kind.path(name)))

    def _call(self, verb: str, kind: ObjectKind, call: Callable[[Api], _T]) -> _T | None:
        """Return the response to a call; None if there is no such object.

        Raises:
            OwnerUnreachable: the call was throttled, or the API server is unreachable or failed.
            ProviderError: the call was refused for another reason.

        """
        action = f"{verb} {kind}"
        is_order = verb not in ("get", "list")
        with self._reached() as api:
            try:
                return call(api)
            except Unreachable as error:
                raise _unreachable(action, error, is_outcome_unknown=is_order) from error
            except NotFound as error:
                if error.reason == _OBJECT_MISSING:
                    return None
                raise ProviderError(f"cannot {action}: {kind.unserved or error}") from error
            except (Unauthorized, Forbidden) as error:
                raise ProviderError(f"not permitted to {action}: grant it: {error}") from error
            except ApiError as error:
                if isinstance(error, Throttled):
                    raise _unreachable(action, error) from error
                if error.status >= 500:
                    raise _unreachable(action, error, is_outcome_unknown=is_order) from error
                raise ProviderError(f"cannot {action}: {error}") from error


def _unreachable(
    action: str, error: BackendError, *, is_outcome_unknown: bool = False
) -> OwnerUnreachable:
    return OwnerUnreachable(
        f"cannot {action}: {error}", after=_UNREACHABLE_PAUSE, is_outcome_unknown=is_outcome_unknown
    )
