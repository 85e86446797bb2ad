"""Calls to a Kubernetes API server, every refusal told in the words of a ``NodeProvider``."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Final

import httpx2
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.core.exceptions import ConfigError as UnfitKubeconfig
from yaml import YAMLError

from holdfast.adapters.providers.orders import OwnerAway
from holdfast.adapters.providers.settings import KubernetesAccess
from holdfast.model.errors import ConfigError, ProviderError

_AWAY_PAUSE: Final = timedelta(seconds=10)
"""An API server that restarts is back within a minute."""

_TIMEOUT: Final = httpx2.Timeout(10.0, connect=3.0)  # seconds, for each wait

_TOO_MANY: Final = 429


class ApiServer:
    """An API server that is reached anew for each order.

    Orders are hours apart: by then, tokens have been renewed and idle connections been cut.
    """

    def __init__(self, access: KubernetesAccess) -> None:
        """Look for the one that a kubeconfig, or else the surroundings, name.

        Raises:
            ConfigError: there is no such cluster to be found.

        """
        self._access = access
        try:
            with self.connected():
                pass
        except ProviderError as error:
            raise ConfigError(f"provider: {error}") from error

    @contextmanager
    def connected(self) -> Iterator[Client]:
        """A client, for as long as the context lasts.

        Raises:
            ProviderError: there is no such cluster to be found any more.

        """
        file, context = self._access.kubeconfig, self._access.context or None
        try:
            found = KubeConfig.from_env() if file is None else KubeConfig.from_file(file)
            client = Client(found.get(context), timeout=_TIMEOUT, field_manager="holdfast")
        except (UnfitKubeconfig, OSError, YAMLError, LookupError, TypeError, AttributeError) as why:
            raise ProviderError(f"no cluster to be reached: {why}") from why
        with closing(client):
            yield client


@contextmanager
def told(action: str, *, missing: str = "") -> Iterator[None]:
    """Tell what ``action``, a verb and a resource such as ``delete nodeclaims``, met.

    Args:
        action: what has to be permitted.
        missing: what it means that the API server does not know the path.

    Raises:
        OwnerAway: throttled, not reachable, or an error of the API server itself.
        ProviderError: refused for another reason.

    """
    try:
        yield
    except httpx2.TransportError as error:
        why = f"cannot {action}: the API server does not answer: {error or type(error).__name__}"
        raise OwnerAway(why, after=_AWAY_PAUSE) from error
    except httpx2.HTTPStatusError as error:
        status = error.response.status_code
        message = error.status.message if isinstance(error, ApiError) else str(error)
        if status == _TOO_MANY or status >= 500:
            raise OwnerAway(f"cannot {action}: {message}", after=_AWAY_PAUSE) from error
        if status == 404 and missing:
            raise ProviderError(f"cannot {action}: {missing}") from error
        if status in (401, 403):
            raise ProviderError(f"not permitted to {action}: grant it: {message}") from error
        raise ProviderError(f"cannot {action}: {message}") from error


def is_missing(error: httpx2.HTTPStatusError) -> bool:
    """Whether an API server answered that an object does not exist."""
    return isinstance(error, ApiError) and error.response.status_code == 404
