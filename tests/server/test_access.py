"""Who may ask the server of a page: a token, the own host, the own page; and how much."""

from __future__ import annotations

from typing import Any

import pytest


def only_problem(found: Any) -> str:
    (problem,) = found["diagnostics"]
    return str(problem["id"])


def test_the_page_needs_the_token(site: Any) -> None:
    assert site.open("GET", "/").read() == b"<p>the page</p>"
    for cookie in (None, "", f"{site.address.cookie}=", f"{site.address.cookie}=é", "parcost=1"):
        sent = None if cookie is None else cookie.encode().decode("latin-1")
        status, found = site.ask("GET", "/", Cookie=sent)
        assert (status, only_problem(found)) == (401, "no-token")


def test_no_task_is_done_without_the_token(site: Any) -> None:
    for path in ("/evaluate", "/spec", "/search", "/stop"):
        status, found = site.ask("POST", path, {}, Cookie=None)
        assert (status, only_problem(found)) == (401, "no-token")
    assert not site.evaluations.tasks
    assert not site.searches.tasks


def test_the_address_with_the_token_becomes_a_cookie_that_no_script_reads(site: Any) -> None:
    answer = site.open("GET", f"/?token={site.address.token}", Cookie=None)
    assert answer.status == 303
    assert answer.headers["Location"] == "/"
    pair, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert pair == site.cookie
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(attributes)
    assert str(site.address.port) in pair  # browsers send cookies of one port to the others


@pytest.mark.parametrize("token", ["", "x", "%00", "%F0%9F%98%80", "a" * 5000])
def test_a_wrong_token_is_refused(site: Any, token: str) -> None:
    status, found = site.ask("GET", f"/?token={token}")
    assert (status, only_problem(found)) == (401, "no-token")


def test_a_program_sends_the_token_in_a_header(site: Any) -> None:
    body = {"set": {"layout.tp": "8"}}
    bearer = f"Bearer {site.address.token}"
    assert site.ask("POST", "/evaluate", body, Cookie=None, Authorization=bearer)[0] == 200
    wrong = site.ask("POST", "/evaluate", body, Cookie=None, Authorization=f"{bearer}x")
    assert wrong[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", None])
def test_a_foreign_host_is_refused(site: Any, host: str | None) -> None:
    """A name of a stranger that resolves to this machine: DNS rebinding."""
    sent = host and host.format(port=site.address.port)
    answer = site.open("GET", "/", Host=sent, Cookie=site.cookie)
    assert answer.status in (400, 403)
    assert b"the page" not in answer.read()
    assert site.open("GET", "/", Host=f"localhost:{site.address.port}").status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://{host}", "http://{host}.evil", "", None]
)
def test_a_foreign_origin_changes_nothing(site: Any, origin: str | None) -> None:
    sent = origin and origin.format(host=site.host)
    for path in ("/evaluate", "/search", "/stop"):
        status, found = site.ask("POST", path, {}, Origin=sent)
        assert (status, only_problem(found)) == (403, "foreign-origin")
    assert not site.evaluations.tasks


def test_every_answer_is_kept_from_other_pages_and_caches(site: Any) -> None:
    answers = [
        site.open("GET", "/"),
        site.open("GET", "/", Cookie=None),
        site.open("GET", "/nothing"),
        site.open("POST", "/evaluate", {}),
        site.open("GET", "/", Host="evil.example"),
    ]
    for answer in answers:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "default-src" in answer.headers["Content-Security-Policy"]
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_a_body_has_a_megabyte_at_most(site: Any) -> None:
    exact = b'{"set": {"a.b": "' + b"1" * (1_000_000 - 20) + b'"}}'
    assert len(exact) == 1_000_000
    assert site.ask("POST", "/evaluate", exact)[0] == 200
    status, found = site.ask("POST", "/evaluate", exact[:-3] + b'1"}}')
    assert (status, only_problem(found)) == (413, "too-large")


def test_a_body_without_a_length_has_a_megabyte_at_most(site: Any) -> None:
    connection = site.connect()
    pieces = (b"x" * 100_000 for _ in range(11))
    connection.request("POST", "/evaluate", pieces, site.own_headers(), encode_chunked=True)
    assert connection.getresponse().status == 413


@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 30])
def test_a_length_that_is_none_is_refused(site: Any, length: str) -> None:
    connection = site.connect()
    connection.putrequest("POST", "/evaluate", skip_host=True)
    for name, value in {**site.own_headers(), "Content-Length": length}.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status in (400, 413)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[1]", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        ({"set": []}, 400),
        ({"set": {"layout.tp": 8}}, 400),
        ({"set": {"tp": "8"}}, 400),
        ({"set": {"layout.tp\nuse": "8"}}, 400),
        (b'{"set": {"layout.tp": "\\ud800"}}', 400),
        ({"set": {f"a.b{n}": "1" for n in range(1001)}}, 400),
        ({"use": ['"../other.par"']}, 400),
        ({"use": ["../other"]}, 400),
        ({"use": ["catalog.devices.b200\nuse x.y"]}, 400),
        ({"use": "catalog.devices.b200"}, 400),
        ({"page": "a b"}, 400),
    ],
)
def test_what_is_no_change_is_refused(site: Any, body: Any, status: int) -> None:
    assert site.ask("POST", "/evaluate", body)[0] == status
    assert not site.evaluations.tasks


@pytest.mark.parametrize(
    ("path", "key", "help"),
    [
        ("/evaluate", "sets", "did you mean `set`?"),
        ("/evaluate", "budget_seconds", "this request may have `page`, `set`, `use`"),
        ("/spec", "uses", "did you mean `use`?"),
        ("/search", "budget", "did you mean `budget_seconds`?"),
        ("/search", "x" * 10_000, "`objective`"),
        ("/stop", "set", "this request may have `page`"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(
    site: Any, path: str, key: str, help: str
) -> None:
    status, found = site.ask("POST", path, {key: {}})
    assert (status, only_problem(found)) == (400, "unknown-key")
    (problem,) = found["diagnostics"]
    assert f"'{key[:20]}" in problem["message"]
    assert len(problem["message"]) < 200
    assert help in problem["help"]
    assert not site.evaluations.tasks
    assert not site.searches.tasks


@pytest.mark.parametrize(
    "body", [b'{"set": {}, "set": {}}', b'{"set": {"layout.tp": "2", "layout.tp": "4"}}']
)
def test_a_key_that_comes_twice_is_refused(site: Any, body: bytes) -> None:
    status, found = site.ask("POST", "/evaluate", body)
    assert (status, only_problem(found)) == (400, "duplicate-key")
    key = "layout.tp" if b"tp" in body else "set"
    assert found["diagnostics"][0]["message"] == f"the request has the key '{key}' twice"


def test_a_key_with_half_a_character_is_refused(site: Any) -> None:
    status, found = site.ask("POST", "/evaluate", b'{"\\ud800\\u001b": 1}')
    assert (status, only_problem(found)) == (400, "unknown-key")


@pytest.mark.parametrize(
    "body",
    [
        {"budget_seconds": 0},
        {"budget_seconds": -1},
        {"budget_seconds": True},
        b'{"budget_seconds": NaN}',
        {"objective": "a; b"},
        {"axes": ["tp"]},
        {"axes": {"layout.tp": 1}},
    ],
)
def test_what_is_no_search_is_refused(site: Any, body: Any) -> None:
    assert site.ask("POST", "/search", body)[0] == 400
    assert not site.searches.tasks


def test_only_json_is_read(site: Any) -> None:
    """A form of another page can send the others without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        assert site.ask("POST", "/evaluate", {}, Content_Type=kind)[0] == 415


def test_there_are_no_other_pages(site: Any) -> None:
    for path in (
        "/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/assets/vega.min.js",
        "//",
        "/evaluate/x",
    ):
        assert site.ask("GET", path)[0] == 404
    assert site.ask("GET", "/evaluate")[0] == 405
    assert site.ask("POST", "/", {})[0] == 405
