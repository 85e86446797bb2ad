"""Databases of both kinds."""

import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from tests.engines.postgresql import missing, postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    with postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.tools)])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/clusters.db"
    server = request.getfixturevalue("server")
    name = f"t{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")
