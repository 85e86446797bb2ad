"""Login to the console through the server of a certified OpenID Connect library."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from served_api import Served, serving, with_keys

from tests.engines.control_plane import Built
from tests.engines.ports import free_port

DEADLINE_S = 90.0
GROUPS = {"ada": ["staff", "sre"], "bob": ["staff"], "eve": ["others", "SRE"]}
PEOPLE = {
    name: {
        "ID": name,
        "Username": name,
        "Password": f"secret of {name}",
        "Email": f"{name}@example.org",
        "EmailVerified": True,
    }
    for name in (*GROUPS, "max")
}
"""``max`` is in no group."""


@dataclass
class Place:
    """A console, and its provider."""

    issuer: str
    served: Served
    home: Path

    def last_login(self) -> dict[str, object]:
        lines = (self.home / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        found: dict[str, object] = json.loads(lines[-1])
        return found


@dataclass
class Provider:
    """A running provider, and ports of consoles that it sends people back to."""

    issuer: str
    ports: list[int]
    folder: Path

    @contextlib.contextmanager
    def console(self, port: int, **changes: str) -> Iterator[Place]:
        values = {
            "issuer": self.issuer,
            "client_id": "web",
            "client_secret": "secret",
            "console_url": f"http://127.0.0.1:{port}",
        } | changes
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
        folder = self.folder / str(port)
        folder.mkdir()
        config = with_keys(folder / "api.toml", f"listen = {port}\n[oidc]\n{lines}\n{SETTINGS}")
        home = str(folder / "home")
        with serving(config, "--listen", str(port), HOLDFAST_HOME=home) as served:
            yield Place(self.issuer, served, folder / "home")


SETTINGS = """
scopes = ["openid", "email", "groups"]
[oidc.groups]
staff = {role = "view"}
sre = {role = "operate"}
"""


@pytest.fixture(scope="module")
def provider(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    program = built("oidc")["oidc"]
    folder = tmp_path_factory.mktemp("provider")
    own, *ports = (free_port() for _ in range(5))
    for name, content in (("people", PEOPLE), ("groups", GROUPS)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    issuer = f"http://localhost:{own}/"
    given = {
        "PORT": str(own),
        "USERS_FILE": str(folder / "people"),
        "GROUPS_FILE": str(folder / "groups"),
        "REDIRECT_URI": ",".join(f"http://127.0.0.1:{one}/console/oidc/callback" for one in ports),
    }
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([program], env={**os.environ, **given}, stdout=log, stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not is_up(issuer):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield Provider(issuer, ports, folder)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def place(provider: Provider) -> Iterator[Place]:
    with provider.console(provider.ports[0]) as place:
        yield place


def is_up(issuer: str) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"{issuer}.well-known/openid-configuration").is_success
    return False


@dataclass
class Browser:
    """Follows redirects one by one, and keeps the cookies of each site."""

    place: Place
    cookies: dict[str, dict[str, str]] = field(default_factory=dict)

    def request(self, method: str, url: str, **options: object) -> httpx2.Response:
        site = urlsplit(url).netloc
        own = self.cookies.setdefault(site, {})
        with httpx2.Client(cookies=own, timeout=DEADLINE_S) as client:
            answer = client.request(method, url, **options)
        own |= dict(answer.cookies)
        return answer

    def until_login(self) -> str:
        """ID of the login that the provider has begun."""
        url = f"{self.place.served.url}/console/oidc/login"
        while "authRequestID" not in url:
            answer = self.request("GET", url)
            assert answer.status_code == 302, answer.text
            url = urljoin(url, answer.headers["location"])
        return parse_qs(urlsplit(url).query)["authRequestID"][0]

    def back(self, begun: str, name: str, password: str) -> str:
        """Log in at the provider; the URL of the console that it sends back to."""
        url = f"{self.place.issuer}login/username"
        form = {"id": begun, "username": name, "password": password}
        answer = self.request("POST", url, data=form)
        while answer.status_code == 302:
            url = urljoin(url, answer.headers["location"])
            if url.startswith(self.place.served.url):
                return url
            answer = self.request("GET", url)
        raise PermissionError(answer.text)

    def log_in(self, name: str) -> httpx2.Response:
        return self.request("GET", self.back(self.until_login(), name, f"secret of {name}"))

    def session(self) -> httpx2.Response:
        return self.request("GET", f"{self.place.served.url}/console/session")


@pytest.mark.parametrize(("name", "role"), [("ada", "operate"), ("bob", "view")])
def test_a_person_has_the_highest_role_of_the_groups(place: Place, name: str, role: str) -> None:
    browser = Browser(place)

    done = browser.log_in(name)

    assert (done.status_code, done.headers["location"]) == (303, "/")
    session = browser.session().json()
    assert (session["person"], session["role"]) == (f"{name}@example.org", role)
    line = place.last_login()
    assert (line["operation"], line["outcome"]) == ("LogIn", "accepted")
    assert line["request"] == {"issuer": place.issuer, "sub": name}


@pytest.mark.parametrize("name", ["eve", "max"])
def test_nobody_else_logs_in(place: Place, name: str) -> None:
    browser = Browser(place)

    done = browser.log_in(name)

    assert done.status_code == 403
    assert f"{name}@example.org is in none of the groups" in done.text
    assert browser.session().status_code == 401
    assert place.last_login()["outcome"] == "refused"


@pytest.mark.parametrize(
    ("number", "changes", "why"),
    [
        (1, {"client_secret": "another"}, "invalid client_id / client_secret"),
        (2, {"client_id": "expired"}, "expired"),
    ],
)
def test_a_wrong_client_secret_and_an_expired_token_are_refused(
    provider: Provider, number: int, changes: dict[str, str], why: str
) -> None:
    with provider.console(provider.ports[number], **changes) as place:
        browser = Browser(place)

        done = browser.log_in("ada")

        assert done.status_code == 401
        assert why in done.text
        assert browser.session().status_code == 401
        assert place.last_login()["outcome"] == "refused"


def test_the_issuer_is_exactly_that_of_the_provider(provider: Provider) -> None:
    other = provider.issuer.replace("localhost", "127.0.0.1")
    with provider.console(provider.ports[3], issuer=other) as place:
        begun = Browser(place).request("GET", f"{place.served.url}/console/oidc/login")

    assert begun.status_code == 503
    assert "use exactly the issuer of the provider" in begun.text


def test_a_cookie_is_worthless_after_the_logout(place: Place) -> None:
    browser = Browser(place)
    browser.log_in("ada")
    copied = Browser(place, {site: dict(own) for site, own in browser.cookies.items()})
    proof = copied.session().json()["proof"]

    headers = {"origin": place.served.url, "x-holdfast-proof": proof}
    ended = browser.request("DELETE", f"{place.served.url}/console/session", headers=headers)

    assert ended.status_code == 204
    assert [one.session().status_code for one in (browser, copied)] == [401, 401]
    assert place.last_login()["operation"] == "LogOut"


def test_a_wrong_password_leads_nowhere(place: Place) -> None:
    browser = Browser(place)

    with pytest.raises(PermissionError):
        browser.back(browser.until_login(), "ada", "wrong")
    assert browser.session().status_code == 401


def test_a_code_counts_once_and_in_its_own_browser_only(place: Place) -> None:
    victim, thief = Browser(place), Browser(place)
    url = victim.back(victim.until_login(), "ada", "secret of ada")
    thief.until_login()

    assert thief.request("GET", url).status_code == 401
    assert thief.session().status_code == 401
    assert victim.request("GET", url).status_code == 303
    again = Browser(place, {site: dict(own) for site, own in victim.cookies.items()})
    for own in again.cookies.values():
        own.pop("holdfast_session", None)
    assert again.request("GET", url).status_code == 401
    assert again.session().status_code == 401
