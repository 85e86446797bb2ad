"""Login to the console through a mock of an OpenID Connect provider, and attacks on it.

The mock is built on Authlib, like the console. ``test_console_oidc_provider.py`` has an independent
provider.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from served_api import Served, rejected, serving, with_keys

from holdfast.apps.exit_codes import ExitCode
from tests.engines.ports import free_port

DEADLINE_S = 90.0
GROUPS = """
staff = {role = "view"}
research = {role = "operate", clusters = ["research"], operations = ["ReadConsole"]}
sre = {role = "operate"}
robots = {role = "view", operations = ["ListClusters"]}
"""
PEOPLE = (
    {"sub": "1", "email": "ada@example.org", "groups": ["staff", "sre"]},
    {"sub": "2", "email": "bob@example.org", "groups": "staff"},
    {"sub": "3", "email": "eve@example.org", "groups": ["others", "SRE", "sre "]},
    {"sub": "4", "email": "kim@example.org", "email_verified": False, "groups": ["sre"]},
    {"sub": "5", "groups": ["sre"]},
    {"sub": "6", "email": "max@example.org"},
    {"sub": "7", "email": "a\nb@example.org", "groups": ["sre"]},
    {"sub": "9", "email": "ann@example.org", "groups": ["staff", "research"]},
    {"sub": "10", "email": "joe@example.org", "groups": ["robots"]},
    {"sub": "8", "email": "lea@example.org", "groups": {"sre": True}},
)


@contextlib.contextmanager
def provider() -> Iterator[str]:
    """The issuer of a mock that knows ``PEOPLE``."""
    port = free_port()
    people = [word for one in PEOPLE for word in ("--user-claims", json.dumps(one))]
    argv = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    with subprocess.Popen([*argv, *people], stderr=subprocess.DEVNULL) as process:
        try:
            issuer, deadline = f"http://127.0.0.1:{port}", time.monotonic() + DEADLINE_S
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if httpx2.get(f"{issuer}/.well-known/openid-configuration").is_success:
                        break
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield issuer
        finally:
            process.terminate()


def settings(issuer: str, port: int, groups: str = GROUPS) -> str:
    return f"""
listen = {port}
[oidc]
issuer = "{issuer}"
client_id = "holdfast"
client_secret = "secret-of-the-client"
console_url = "http://127.0.0.1:{port}"
[oidc.groups]
{groups}
"""


@dataclass
class Place:
    issuer: str
    served: Served
    home: Path

    def audited(self) -> list[dict[str, object]]:
        text = (self.home / "audit.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("oidc")
    with provider() as issuer:
        port = free_port()
        config = with_keys(folder / "api.toml", settings(issuer, port))
        more = {"HOLDFAST_HOME": str(folder / "home")}
        with serving(config, "--listen", str(port), **more) as served:
            yield Place(issuer, served, folder / "home")


@dataclass
class Browser:
    """Follows a login step by step, with the cookies of the console."""

    place: Place
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        with httpx2.Client(cookies=self.cookies, timeout=DEADLINE_S) as client:
            answer = client.get(f"{self.place.served.url}{path}", headers=headers)
            self.cookies |= dict(answer.cookies)
            return answer

    def begin(self) -> str:
        """URL of the provider."""
        begun = self.get("/console/oidc/login")
        assert begun.status_code == 302, begun.text
        return begun.headers["location"]

    def back(self, sub: str, url: str) -> str:
        """Log in at the provider; the path and the query of the URL that it sends back to."""
        sent = httpx2.post(url, data={"sub": sub}, timeout=DEADLINE_S)
        assert sent.status_code == 302, sent.text
        parts = urlsplit(sent.headers["location"])
        assert f"{parts.scheme}://{parts.netloc}" == self.place.served.url
        return f"{parts.path}?{parts.query}"

    def log_in(self, sub: str) -> httpx2.Response:
        return self.get(self.back(sub, self.begin()))

    def session(self) -> dict[str, object]:
        return self.get("/console/session").json()


@pytest.fixture
def browser(place) -> Browser:
    return Browser(place)


@pytest.mark.parametrize(
    ("sub", "person", "role"),
    [("1", "ada@example.org", "operate"), ("2", "bob@example.org", "view")],
)
def test_a_person_gets_the_highest_role_of_the_groups(place, browser, sub, person, role) -> None:
    assert browser.get("/console/ways").json()["provider"] == "/console/oidc/login"

    done = browser.log_in(sub)

    assert (done.status_code, done.headers["location"]) == (303, "/")
    [cookie] = [
        one for one in done.headers.get_list("set-cookie") if one.startswith("holdfast_session=")
    ]
    assert {"HttpOnly", "SameSite=strict", "Path=/console"} <= set(cookie.split("; "))
    session = browser.session()
    assert (session["person"], session["role"]) == (person, role)
    line = place.audited()[-1]
    assert (line["person"], line["operation"], line["outcome"]) == (person, "LogIn", "accepted")
    assert line["request"] == {"issuer": place.issuer, "sub": sub}


def test_a_group_permits_the_named_operations_only(browser) -> None:
    browser.log_in("9")

    session = browser.session()

    assert (session["person"], session["role"]) == ("ann@example.org", "operate")
    assert session["acts"] == []


@pytest.mark.attack
@pytest.mark.parametrize(
    ("sub", "status", "said"),
    [
        ("3", 403, "eve@example.org is in none of the groups"),
        ("4", 401, "kim@example.org is not verified"),
        ("5", 401, "no usable claim email"),
        ("6", 403, "max@example.org is in none of the groups"),
        ("10", 403, "joe@example.org is not authorized to perform: sagemaker:ReadConsole"),
        ("7", 401, "no usable claim email"),
        ("8", 403, "lea@example.org is in none of the groups"),
    ],
)
def test_nobody_else_logs_in(place, browser, sub, status, said) -> None:
    done = browser.log_in(sub)

    assert done.status_code == status
    assert said in done.text
    assert "holdfast_session" not in done.headers.get("set-cookie", "")
    assert browser.get("/console/session").status_code == 401
    assert place.audited()[-1]["outcome"] == "refused"


def test_the_flow_has_pkce_a_nonce_and_a_fixed_address(browser) -> None:
    query = parse_qs(urlsplit(browser.begin()).query)
    other = parse_qs(urlsplit(browser.begin()).query)

    assert query["code_challenge_method"] == ["S256"]
    assert query["response_type"] == ["code"]
    assert query["redirect_uri"] == [f"{browser.place.served.url}/console/oidc/callback"]
    for name in ("state", "nonce", "code_challenge"):
        assert query[name] != other[name]


def test_the_address_of_the_console_is_not_that_of_a_header(browser) -> None:
    forged = {"host": "elsewhere.example", "x-forwarded-host": "elsewhere.example"}
    begun = browser.get("/console/oidc/login", **forged)

    assert "elsewhere" not in begun.headers["location"]


@pytest.mark.attack
def test_the_login_of_one_browser_is_none_of_another(place, browser) -> None:
    stolen = browser.back("1", browser.begin())
    victim = Browser(place)
    victim.begin()
    answers = [victim.get(stolen), Browser(place).get(stolen)]

    assert [one.status_code for one in answers] == [401, 401]
    assert victim.get("/console/session").status_code == 401


@pytest.mark.attack
@pytest.mark.parametrize(
    "change",
    [
        {"state": "x" * 30},
        {"state": ""},
        {"code": "x" * 30},
        {"code": ""},
        {"error": "access_denied", "error_description": "<script>"},
    ],
)
def test_an_answer_that_was_changed_is_refused(browser, change) -> None:
    path, _, query = browser.back("1", browser.begin()).partition("?")
    values = {name: one[0] for name, one in parse_qs(query).items()} | change

    done = browser.get(f"{path}?{urlencode(values)}")

    assert done.status_code == 401
    assert done.headers["content-type"].startswith("text/plain")
    assert done.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/console/session").status_code == 401


@pytest.mark.attack
def test_an_answer_is_accepted_once(place, browser) -> None:
    state = browser.begin()
    before = dict(browser.cookies)
    answer = browser.back("1", state)
    first = browser.get(answer)
    replayed = Browser(place, before).get(answer)

    assert first.status_code == 303
    assert browser.get(answer).status_code == 401
    assert replayed.status_code == 401


@pytest.mark.attack
def test_the_code_of_another_login_does_not_fit(browser) -> None:
    """Its nonce and its PKCE verifier are those of the other login."""
    other = Browser(browser.place)
    code = parse_qs(urlsplit(other.back("1", other.begin())).query)["code"][0]
    state = parse_qs(urlsplit(browser.begin()).query)["state"][0]

    done = browser.get(f"/console/oidc/callback?{urlencode({'code': code, 'state': state})}")

    assert done.status_code == 401


def test_a_session_has_the_roles_of_now_and_no_secret_is_logged(tmp_path) -> None:
    with provider() as issuer:
        port = free_port()
        statuses = []
        cookie: dict[str, str] = {}
        for groups in (
            'sre = {role = "operate"}',
            'sre = {role = "view"}',
            'staff-of-others = {role = "admin"}',
        ):
            config = with_keys(tmp_path / "api.toml", settings(issuer, port, groups))
            home = {"HOLDFAST_HOME": str(tmp_path / "home")}
            with serving(config, "--listen", str(port), **home) as served:
                browser = Browser(Place(issuer, served, tmp_path / "home"), dict(cookie))
                if not cookie:
                    assert browser.log_in("1").status_code == 303
                    cookie = {"holdfast_session": browser.cookies["holdfast_session"]}
                answer = browser.get("/console/session")
                statuses.append((answer.status_code, answer.json().get("role")))
                assert "secret-of-the-client" not in served.said()

    assert statuses == [(200, "operate"), (200, "view"), (401, None)]


def test_without_the_provider_tokens_still_work(tmp_path) -> None:
    port = free_port()
    config = with_keys(tmp_path / "api.toml", settings(f"http://127.0.0.1:{free_port()}", port))
    home = {"HOLDFAST_HOME": str(tmp_path / "home")}
    with serving(config, "--listen", str(port), **home) as served:
        browser = Browser(Place("", served, tmp_path / "home"))

        begun = browser.get("/console/oidc/login")
        assert begun.status_code == 503
        assert "cannot be used for logins" in begun.text
        assert browser.get("/console/ways").status_code == 200
        assert browser.get("/healthz").status_code == 200


def test_the_provider_must_be_the_issuer_that_is_configured(place, tmp_path) -> None:
    port = free_port()
    config = with_keys(tmp_path / "api.toml", settings(place.issuer + "/", port))
    home = {"HOLDFAST_HOME": str(tmp_path / "home")}
    with serving(config, "--listen", str(port), **home) as served:
        begun = Browser(Place("", served, tmp_path / "home")).get("/console/oidc/login")

    assert begun.status_code == 503
    assert "use exactly the issuer of the provider" in begun.text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("http://127.0.0.1:1", "http://idp.example.org", "issuer must be an https URL"),
        ("http://127.0.0.1:2", "http://holdfast.example.org", "console_url must be an https URL"),
        ("http://127.0.0.1:2", "https://holdfast.example.org/x", "console_url must have no path"),
        (GROUPS, "", "groups is empty"),
        ('sre = {role = "operate"}', 'sre = {role = "root"}', "expected one of"),
        ('["ReadConsole"]', '["CreateCluster"]', "CreateCluster requires the role admin"),
    ],
)
def test_settings_that_cannot_be_used_are_reported(tmp_path, monkeypatch, old, new, said) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    text = settings("http://127.0.0.1:1", 2).replace(old, new)
    config = with_keys(tmp_path / "api.toml", text)

    ended = rejected("api", "--config", str(config))

    assert ended.returncode == ExitCode.BAD_INPUT
    assert said in ended.stderr
    assert "secret-of-the-client" not in ended.stderr
