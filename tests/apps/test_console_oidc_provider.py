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

from holdfast.kit.free_ports import free_port
from tests.engines.control_plane import Built

DEADLINE_S = 30.0
PEOPLE = {
    name: {"ID": name, "Username": name, "Password": f"secret of {name}"} for name in ("ada", "eve")
}


@dataclass
class Place:
    """A console, and its provider, which tells of a person no more than the ID."""

    issuer: str
    served: Served
    home: Path

    def last_login(self) -> dict[str, object]:
        lines = (self.home / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        found: dict[str, object] = json.loads(lines[-1])
        return found


@pytest.fixture(scope="module")
def place(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    program = built("oidc")["oidc"]
    folder = tmp_path_factory.mktemp("provider")
    people, own, other = folder / "people.json", free_port(), free_port()
    people.write_text(json.dumps(PEOPLE), encoding="utf-8")
    issuer = f"http://localhost:{other}/"
    settings = f"""
listen = {own}
[oidc]
issuer = "{issuer}"
client_id = "web"
client_secret = "secret"
console_url = "http://127.0.0.1:{own}"
name_claim = "sub"
groups_claim = "sub"
[oidc.groups]
ada = {{role = "operate"}}
"""
    given = {
        "PORT": str(other),
        "USERS_FILE": str(people),
        "REDIRECT_URI": f"http://127.0.0.1:{own}/console/oidc/callback",
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
            config = with_keys(folder / "api.toml", settings)
            home = folder / "home"
            with serving(config, "--listen", str(own), HOLDFAST_HOME=str(home)) as served:
                yield Place(issuer, served, home)
        finally:
            process.kill()


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
        password = PEOPLE[name]["Password"]
        return self.request("GET", self.back(self.until_login(), name, password))

    def session(self) -> httpx2.Response:
        return self.request("GET", f"{self.place.served.url}/console/session")


def test_a_person_of_a_group_logs_in(place: Place) -> None:
    browser = Browser(place)

    done = browser.log_in("ada")

    assert (done.status_code, done.headers["location"]) == (303, "/")
    session = browser.session().json()
    assert (session["person"], session["role"]) == ("ada", "operate")
    line = place.last_login()
    assert (line["operation"], line["outcome"]) == ("LogIn", "accepted")
    assert line["request"] == {"issuer": place.issuer, "sub": "ada"}


def test_a_person_without_a_group_does_not(place: Place) -> None:
    browser = Browser(place)

    done = browser.log_in("eve")

    assert done.status_code == 403
    assert browser.session().status_code == 401
    assert place.last_login()["outcome"] == "refused"


def test_a_wrong_password_leads_nowhere(place: Place) -> None:
    browser = Browser(place)

    with pytest.raises(PermissionError):
        browser.back(browser.until_login(), "ada", "wrong")
    assert browser.session().status_code == 401


def test_a_code_counts_once_and_in_its_own_browser_only(place: Place) -> None:
    victim, thief = Browser(place), Browser(place)
    url = victim.back(victim.until_login(), "ada", PEOPLE["ada"]["Password"])
    thief.until_login()

    assert thief.request("GET", url).status_code == 401
    assert thief.session().status_code == 401
    assert victim.request("GET", url).status_code == 303
    again = Browser(place, {site: dict(own) for site, own in victim.cookies.items()})
    for own in again.cookies.values():
        own.pop("holdfast_session", None)
    assert again.request("GET", url).status_code == 401
    assert again.session().status_code == 401
