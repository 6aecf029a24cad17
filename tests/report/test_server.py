"""The server of a report: who is answered, with what, and what is refused."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from abele.errors import AbeleError, InvalidOption
from abele.report.server import LONGEST, Server
from abele.report.shown import Shown
from abele.report.store import Report, write
from tests.report.synthetic import Shape, program


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return report(tmp_path_factory.mktemp("server") / "profile.pop", "first")


def report(path, title, operations=60):
    write(path, [program(Shape(2, 64, operations))], title=title, sources={f"{title}.py": "x = 1\n"})
    return path


@contextmanager
def served(source, **more):
    with Server(source, **more) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(file):
    with served(Shown(file)) as server:
        yield server


def ask(server, path, method="GET", token=True, body=None, **headers):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    given = {"X-Abele-Token": server.token} if token else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def raw(server, request):
    """The whole answer to bytes that need not be a request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_page_and_everything_that_it_asks_for(server, file):
    status, headers, html = ask(server, server.url.split("/", 3)[3].join(("/", "")), token=False)
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert f'<meta name="token" content="{server.token}">'.encode() in html
    with Report(file) as there:
        for name in [*there.names(), "compare/0/0"]:
            status, headers, content = ask(server, f"/data/{name}")
            assert (status, content, headers["Content-Type"]) == (200, *there.resource(name)), name


def test_answers_are_for_this_page_alone(server):
    for path in ("/", "/data/index", "/nothing"):
        headers = ask(server, path)[1]
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store" and "Set-Cookie" not in headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy and "*" not in policy
        assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/data/index", "/events", "/metrics", "/nothing"])
def test_without_the_token_nothing_is_said(server, path):
    for wrong in ("", "x", server.token[:-1], server.token + "x", "\xff"):
        for given in (
            ask(server, path, X_Abele_Token=wrong),
            ask(server, f"{path}?token={wrong.encode().hex()}", token=False),
        ):
            assert given[0] == 403 and b"holds the token" in given[2], path


def test_the_token_may_come_in_three_ways(server):
    assert ask(server, "/data/index", Authorization=f"Bearer {server.token}", token=False)[0] == 200
    assert ask(server, f"/data/index?token={server.token}", token=False)[0] == 200
    assert ask(server, "/data/index")[0] == 200


def test_every_server_has_its_own_token(server, file):
    with Server(Shown(file)) as other:
        assert other.token != server.token and len(other.token) >= 32 and other.port != server.port


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1]:80", "127.0.0.1@evil"]
)
def test_other_names_that_point_here_are_refused(server, host):
    assert ask(server, "/data/index", Host=host)[0] == 403


def test_the_port_is_free_for_tunnels(server):
    for host in ("localhost", "LOCALHOST:9", "127.0.0.1:8000"):
        assert ask(server, "/data/index", Host=host)[0] == 200


def test_no_host_at_all(server):
    head = f"GET /data/index HTTP/1.1\r\nX-Abele-Token: {server.token}\r\n\r\n"
    assert raw(server, head.encode()).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "path",
    [
        *("/data/../../../../etc/passwd", "/../etc/passwd", "/data/%2e%2e/%2e%2e/etc/passwd", "/data//etc/passwd"),
        *("/etc/passwd", "/data/", "/data", "/data/profile.pop", "/viewer.js", "/data/p/0/", "/data/p/-1/summary"),
        *(
            "/data/p/9/operations",
            "/data/p/%D9%A3/summary",
            "/data/source/9",
            "/data/compare/0/9",
            "/data/%00",
            "/data/%ff",
        ),
        *("/data/p/0/operations' or 1=1 --", "/data/" + "x" * 1900, "/data/p/" + "9" * 400 + "/summary"),
        *("/data/source/" + "9" * 30, "/events", "/metrics"),
    ],
)
def test_nothing_but_the_report_is_served(server, path):
    status, headers, content = ask(server, path.replace(" ", "%20"))
    assert status == 404 and headers["Content-Type"].startswith("text/plain"), content
    assert b"root:" not in content and b"Traceback" not in content


def test_methods(server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND"):
        status, headers, _ = ask(server, "/data/index", method)
        assert status == 405 and headers["Allow"] == "GET, HEAD", method
    status, headers, content = ask(server, "/data/index", "HEAD")
    assert status == 200 and content == b"" and int(headers["Content-Length"]) > 10
    assert ask(server, "/data/index", body=b"content")[0] == 400


def test_requests_that_are_none(server):
    assert ask(server, "/" + "x" * LONGEST)[0] == 414
    assert b" 414 " in raw(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")
    assert b" 431 " in raw(server, b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n")
    assert b"Bad request" in raw(server, b"\x16\x03\x01 nonsense of a kind\r\n\r\n")
    assert b" 400 " in raw(server, b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert raw(server, b"") == b""
    assert ask(server, "/data/index")[0] == 200, "it goes on after all that"


def test_answers_are_compressed_where_that_is_wanted(server, file):
    with Report(file) as there:
        names = there.names()
    for path in ("/", "/data/compare/0/0", *(f"/data/{name}" for name in names)):
        plain = ask(server, path)[2]
        status, headers, packed = ask(server, path, Accept_Encoding="gzip, deflate, br")
        assert status == 200 and headers["Content-Encoding"] == "deflate"
        assert zlib.decompress(packed) == plain


def test_content_does_not_wait_until_the_reader_has_told_that_the_head_came(server, monkeypatch):
    """Two writes, and an acknowledgement that is held back: each first answer took 40 ms."""
    answer, found = server.RequestHandlerClass.do_GET, []

    def recording(handler):
        found.append(handler.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        answer(handler)

    monkeypatch.setattr(server.RequestHandlerClass, "do_GET", recording)
    assert ask(server, "/data/index")[0] == 200
    assert found and all(found)


def test_several_viewers_at_once(server, file):
    with Report(file) as there:
        names = there.names() * 6
        wanted = {name: there.resource(name)[0] for name in set(names)}
    with ThreadPoolExecutor(12) as pool:
        for name, answer in zip(names, pool.map(lambda name: ask(server, f"/data/{name}"), names), strict=True):
            assert answer[0] == 200 and answer[2] == wanted[name]


def titled(server):
    _, headers, content = ask(server, "/data/index")
    return json.loads(content)["title"], headers["X-Abele-Report"]


def test_a_report_that_is_made_again_is_shown_as_it_is_now(tmp_path):
    path = report(tmp_path / "profile.pop", "before")
    with served(Shown(path)) as server:
        assert titled(server) == ("before", "0")
        report(tmp_path / "new.pop", "after", operations=70).replace(path)
        assert titled(server) == ("after", "1")
        whole = path.read_bytes()
        for broken in (b"", whole[:5000], b"something else"):
            (tmp_path / "new.pop").write_bytes(broken)
            (tmp_path / "new.pop").replace(path)
            assert titled(server) == ("after", "1"), "what was open goes on"
        path.unlink()
        assert titled(server) == ("after", "1")
        report(path, "again")
        assert titled(server) == ("again", "2")
        path.write_bytes(whole[:5000])
        status, _, content = ask(server, "/data/index")
        assert status == 500 and b"is damaged" in content, (
            "overwritten in place, so that nothing is left of what was open"
        )
        path.write_bytes(whole)
        assert titled(server) == ("after", "3")


def test_it_answers_while_the_report_is_replaced_all_the_time(tmp_path):
    path = tmp_path / "profile.pop"
    versions = [report(tmp_path / f"{i}.pop", f"title {i}", operations=24 * i) for i in range(1, 4)]
    shutil.copy(versions[0], path)
    over = threading.Event()

    def replace():
        while not over.is_set():
            for version in versions:
                shutil.copy(version, tmp_path / "new")
                os.replace(tmp_path / "new", path)

    with served(Shown(path)) as server, ThreadPoolExecutor(5) as pool:
        pool.submit(replace)
        try:
            answers = [pool.submit(ask, server, f"/data/{n}") for n in ["index", "p/0/operations"] * 40]
            assert {each.result()[0] for each in answers} == {200}
        finally:
            over.set()


def test_two_reports_are_one(tmp_path, file):
    other = report(tmp_path / "profile.pop", "second", operations=48)
    with served(Shown(file, tmp_path)) as server, Report(file) as a, Report(other) as b:
        index = json.loads(ask(server, "/data/index")[2])
        assert [(p["id"], p["name"]) for p in index["programs"]] == [(0, "B: synthetic"), (1, "A: synthetic")]
        assert [p["report"] for p in index["programs"]] == [0, 1]
        assert index["title"] == "first | second" and index["sources"] == ["first.py", "second.py"]
        assert ask(server, "/data/p/0/operations")[2] == a.packet("p/0/operations")
        assert ask(server, "/data/p/1/operations")[2] == b.packet("p/0/operations")
        assert json.loads(ask(server, "/data/source/1")[2])["file"] == "second.py"
        assert json.loads(ask(server, "/data/compare/0/1")[2]) == json.loads(json.dumps(a.compare(0, 0, b)))
        assert json.loads(ask(server, "/data/compare/1/0")[2])["totals"][0]["a"] == b.summary()["cycles"]
        for name in ("p/2/summary", "source/2", "compare/0/2", "nothing"):
            assert ask(server, f"/data/{name}")[0] == 404


class Run:
    """A run that goes on, by hand."""

    def events(self, after):
        for i in range(int(after or 0) + 1, 4):
            yield f"id: {i}\ndata: {{}}\n\n".encode()

    def metrics(self):
        return 'abele_steps_total{name="\udcff"} 3\n'  # of a file whose name is no UTF-8


def test_events_and_metrics_of_a_run(file):
    with served(Shown(file), live=Run()) as server:
        status, headers, content = ask(server, "/events?after=1")
        assert status == 200 and headers["Content-Type"] == "text/event-stream"
        assert content == b"id: 2\ndata: {}\n\nid: 3\ndata: {}\n\n"
        assert ask(server, "/events?after=1", Last_Event_ID="2")[2] == b"id: 3\ndata: {}\n\n", (
            "a browser that comes back"
        )
        assert ask(server, "/metrics")[2] == b'abele_steps_total{name="?"} 3\n'


def test_a_port_that_is_taken(server, file):
    with pytest.raises(InvalidOption, match=rf"Port {server.port} is taken.*--port"):
        Server(Shown(file), server.port)


@pytest.mark.parametrize("content", [None, b"", b"<html>", b"SQLite format 3\0 and no more"])
def test_files_that_are_no_report(tmp_path, content):
    path = tmp_path / "profile.pop"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AbeleError, match=r"profile\.pop"):
        Shown(path)
    with pytest.raises(InvalidOption, match="no profile"):
        Shown(tmp_path / "..")
    with pytest.raises(InvalidOption, match="browser opens it"):
        Shown(tmp_path / "report.html")


def command(*words):
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a background shell ignores it
    return subprocess.Popen(
        [sys.executable, "-c", f"{start}; from abele.cli import main; main()", "view", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_says_where_it_listens_and_ends_with_ctrl_c(file):
    process = command(file.parent, "--json")
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["url"] == f"http://127.0.0.1:{said['port']}/?token={said['token']}"
    connection = http.client.HTTPConnection("127.0.0.1", said["port"], timeout=20)
    connection.request("GET", "/data/index", headers={"X-Abele-Token": said["token"]})
    assert json.loads(connection.getresponse().read())["title"] == "first"
    taken = command(file, "--port", said["port"], "--no-browser")
    out, err = taken.communicate(timeout=30)
    assert taken.returncode == 2 and out == "" and f"Port {said['port']} is taken" in err and "Traceback" not in err
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", ""), "a connection that is open does not keep it"


def test_the_browser_is_opened_unless_told_not_to(file, monkeypatch, capsys):
    from abele.cli import main

    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    main(["view", str(file)])
    assert len(opened) == 1 and opened[0] in capsys.readouterr().out
    main(["view", str(file), "--no-browser"])
    assert len(opened) == 1 and "Open in a browser: http://127.0.0.1:" in capsys.readouterr().out
