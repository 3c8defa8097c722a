"""How sandboxes are found, put away, woken, copied and ended, by the unmodified SDK."""

import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from e2b import (
    AuthenticationException,
    NotFoundException,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    ServiceBusyException,
    TimeoutException,
)

from paddock.testing.conformance.outside import neighbour
from tests.interfaces.e2b.counting import COUNTER

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
def made(e2b):
    """Makes sandboxes that are gone afterwards."""
    boxes = []

    def create(*words, **wish):
        boxes.append(e2b.Sandbox.create(*words, **wish))
        return boxes[-1]

    yield create
    for each in boxes:
        e2b.Sandbox.kill(each.sandbox_id)


def ids(paginator):
    found = []
    while paginator.has_next:
        found.append([each.sandbox_id for each in paginator.next_items()])
    return found


def test_lists_are_paged_ordered_and_filtered(e2b, made):
    first, second, third = (made(metadata={"of": "list & co", "n": str(n)}) for n in range(3))
    mine = SandboxQuery(metadata={"of": "list & co"})
    expected = [third.sandbox_id, second.sandbox_id, first.sandbox_id]
    assert ids(e2b.Sandbox.list(query=mine, limit=2)) == [expected[:2], expected[2:]]
    assert ids(e2b.Sandbox.list(query=mine, limit=1, order="asc")) == [
        [x] for x in reversed(expected)
    ]
    assert ids(e2b.Sandbox.list(query=SandboxQuery(metadata={"n": "1", "of": "list & co"}))) == [
        [second.sandbox_id]
    ]
    second.pause()
    paused = SandboxQuery(metadata={"of": "list & co"}, state=[SandboxState.PAUSED])
    assert ids(e2b.Sandbox.list(query=paused)) == [[second.sandbox_id]]
    other = SandboxQuery(metadata={"of": "list & co"}, template="nothing")
    assert ids(e2b.Sandbox.list(query=other)) == [[]]


def test_a_pause_keeps_memory_and_the_token(e2b, made):
    box = made(timeout=60)
    handle = box.commands.run(COUNTER, background=True, stdin=True, timeout=0)
    box.commands.send_stdin(handle.pid, "20\n")
    assert next(iter(handle)) == ("20\n", None, None)
    box.files.write("f.txt", "kept")
    assert box.pause() is True
    assert box.pause() is False
    info = e2b.Sandbox.get_info(box.sandbox_id)
    assert info.state == SandboxState.PAUSED
    assert not box.is_running()
    again = e2b.Sandbox.connect(box.sandbox_id, timeout=120)
    assert again.sandbox_id == box.sandbox_id
    assert box.files.read("f.txt") == "kept"
    counting = again.commands.connect(handle.pid)
    again.commands.send_stdin(handle.pid, "22\n")
    again.commands.close_stdin(handle.pid)
    assert counting.wait().stdout.endswith("42\n")
    left = (again.get_info().end_at.timestamp()) - time.time()
    assert 110 < left <= 121


def test_a_pause_of_the_disk_only_is_a_reboot(e2b, made):
    box = made(timeout=60)
    box.commands.run("sleep 300", background=True, timeout=0)
    box.files.write("f.txt", "kept")
    assert box.pause(mode="filesystem") is True
    again = e2b.Sandbox.connect(box.sandbox_id, timeout=60)
    assert again.files.read("f.txt") == "kept"
    assert again.commands.list() == []


def test_the_timeout_kills_and_connecting_never_shortens(e2b, made):
    box = made(timeout=60)
    e2b.Sandbox.connect(box.sandbox_id, timeout=10)
    assert box.get_info().end_at.timestamp() - time.time() > 50
    box.set_timeout(1)
    deadline = time.monotonic() + 20
    while box.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(SandboxNotFoundException, match="not found"):
        box.get_info()
    with pytest.raises(TimeoutException, match=r"not running|timeout"):
        box.commands.run("true")


def test_the_timeout_pauses_and_traffic_wakes(e2b, made):
    box = made(timeout=1, lifecycle={"on_timeout": "pause", "auto_resume": True})
    box.files.write("f.txt", "kept")
    deadline = time.monotonic() + 20
    while box.get_info().state != SandboxState.PAUSED:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert box.files.read("f.txt") == "kept"
    e2b.Sandbox.connect(box.sandbox_id, timeout=60)
    assert box.get_info().lifecycle["auto_resume"] is True


def test_a_paused_one_without_it_sleeps_on(made):
    box = made(timeout=60)
    box.pause()
    with pytest.raises(TimeoutException, match=r"not running|not found|paused"):
        box.commands.run("true")


def test_killed_while_a_command_is_followed(made):
    box = made(timeout=60)
    handle = box.commands.run("sleep 60", background=True, timeout=0)
    began = time.monotonic()
    box.kill()
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        handle.wait()
    assert time.monotonic() - began < 25


def test_paused_while_a_command_is_followed(made):
    box = made(timeout=60)
    handle = box.commands.run("sleep 60", background=True, timeout=0)
    box.pause()
    with pytest.raises(TimeoutException, match="killed or reached its end of life"):
        handle.wait()


def test_wrong_keys_and_foreign_sandboxes_do_not_get_in(e2b, live, made):
    box = made(timeout=60)
    for key in ("e2b_" + "0" * 40, "nonsense", f"{live.key}x"):
        with pytest.raises(AuthenticationException):
            live.client(api_key=key).Sandbox.create()
    other = live.client(api_key=live.do(live.plane.team(f"e2b-{time.time_ns()}")).token)
    for call in (
        lambda: other.Sandbox.get_info(box.sandbox_id),
        lambda: other.Sandbox.connect(box.sandbox_id),
        lambda: other.Sandbox.set_timeout(box.sandbox_id, 5),
        lambda: other.Sandbox.pause(box.sandbox_id),
        lambda: other.Sandbox.create_snapshot(box.sandbox_id),
    ):
        with pytest.raises(SandboxNotFoundException):
            call()
    assert other.Sandbox.kill(box.sandbox_id) is False
    assert ids(other.Sandbox.list()) == [[]]
    assert box.is_running()
    theirs = other.Sandbox.create(timeout=60)
    token = theirs.connection_config.sandbox_headers["X-Access-Token"]
    request = urllib.request.Request(
        f"{live.url}/files?path=/etc/hostname",
        headers={"E2b-Sandbox-Id": box.sandbox_id, "X-Access-Token": token},
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=10)
    theirs.kill()


def test_an_unknown_template_is_said_to_be(e2b):
    with pytest.raises((NotFoundException, SandboxException), match=r"404|not found|no template"):
        e2b.Sandbox.create("no-such-template")


def test_the_same_key_is_the_same_sandbox(e2b, made):
    key = f"k-{time.time_ns()}"
    assert made(idempotency_key=key).sandbox_id == made(idempotency_key=key).sandbox_id


def test_snapshots_are_taken_listed_used_and_deleted(e2b, made):
    box = made(timeout=60)
    box.files.write("f.txt", "then")
    name = f"snap-{time.time_ns()}"
    snapshot = box.create_snapshot(name=name)
    box.files.write("f.txt", "now")
    assert snapshot.snapshot_id == f"{name}:default"
    listed = e2b.Sandbox.list_snapshots(sandbox_id=box.sandbox_id).next_items()
    assert [each.snapshot_id for each in listed] == [snapshot.snapshot_id]
    copy = made(snapshot.snapshot_id, timeout=60)
    assert copy.files.read("f.txt") == "then"
    assert box.files.read("f.txt") == "now"
    assert e2b.Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert e2b.Sandbox.delete_snapshot(snapshot.snapshot_id) is False


def test_snapshots_are_listed_in_pages(e2b, made):
    box = made(timeout=60)
    names = [f"page-{n}-{time.time_ns()}" for n in range(3)]
    taken = [box.create_snapshot(name=name).snapshot_id for name in names]
    try:
        listed, pages = e2b.Sandbox.list_snapshots(sandbox_id=box.sandbox_id, limit=2), []
        while listed.has_next:
            pages.append([each.snapshot_id for each in listed.next_items()])
        assert [len(each) for each in pages] == [2, 1]
        assert {each for page in pages for each in page} == set(taken)
    finally:
        for each in taken:
            e2b.Sandbox.delete_snapshot(each)


def test_a_snapshots_name_stands_for_the_newest(e2b, made):
    """Whichever sandbox it is of; what was made of an earlier one goes on."""
    name = f"again-{time.time_ns()}"
    first, second = made(timeout=60), made(timeout=60)
    first.files.write("f.txt", "one")
    snapshot = first.create_snapshot(name=name)
    copy = made(snapshot.snapshot_id, timeout=60)
    for box, text in ((first, "two"), (second, "three")):
        box.files.write("f.txt", text)
        assert box.create_snapshot(name=name).snapshot_id == snapshot.snapshot_id
        assert made(snapshot.snapshot_id, timeout=60).files.read("f.txt") == text
    assert copy.files.read("f.txt") == "one"
    listed = e2b.Sandbox.list_snapshots(name=name).next_items()
    assert [each.snapshot_id for each in listed] == [snapshot.snapshot_id]
    assert e2b.Sandbox.delete_snapshot(snapshot.snapshot_id) is True


def test_a_strict_pause_needs_an_agent_that_answers(live, made):
    box = made(timeout=60)
    seconds = f"{time.time_ns() % 10**9 + 10**9}"
    box.commands.run(f"sleep {seconds}", background=True, timeout=0)
    agent = agent_of(f"sleep\0{seconds}\0".encode())
    client = live.client(retries=0)
    os.kill(agent, signal.SIGSTOP)
    try:
        for options in ({"strict": True}, {"mode": "filesystem"}):
            with pytest.raises(ServiceBusyException, match="does not answer, so it was not paused"):
                client.Sandbox.pause(box.sandbox_id, **options)
    finally:
        os.kill(agent, signal.SIGCONT)
    assert box.get_info().state == "running"
    assert box.pause(strict=True) is True


def agent_of(command):
    """The process of this host that has started a command of a sandbox."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if found.read_bytes() == command:
                    return ancestor(int(found.parent.name))
        time.sleep(0.05)
    raise AssertionError(f"nobody runs {command}")


def ancestor(pid):
    """The nearest that is the guest."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"guest" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("no guest has started it")


def test_forks_go_their_own_ways(e2b, made):
    box = made(timeout=60)
    box.files.write("f.txt", "same")
    forks = e2b.Sandbox.fork(box.sandbox_id, count=2, timeout=60)
    try:
        assert [fork.files.read("f.txt") for fork in forks] == ["same", "same"]
        forks[0].files.write("f.txt", "other")
        assert box.files.read("f.txt") == forks[1].files.read("f.txt") == "same"
    finally:
        for fork in forks:
            fork.kill()


def test_metrics_are_of_the_sandbox(made):
    box = made(timeout=60)
    (metric,) = box.get_metrics()
    assert metric.cpu_count >= 1
    assert 0 < metric.mem_used < metric.mem_total
    assert 0 < metric.disk_used < metric.disk_total


def test_how_much_network_there_is(made):
    closed = made(timeout=60, allow_internet_access=False)
    assert closed.get_info().allow_internet_access is False
    links = closed.commands.run("ls /sys/class/net").stdout.split()
    assert links == ["lo"]
    opened = made(timeout=60, network={"allow_out": ["0.0.0.0/0"]})
    assert opened.commands.run("ls /sys/class/net").stdout.split() != ["lo"]
    fenced = made(timeout=60, network={"allow_out": ["example.org"]})
    assert fenced.commands.run("getent ahostsv4 example.org").stdout.startswith("198.1")
    assert fenced.commands.run("getent ahostsv4 example.com || echo none").stdout == "none\n"


def test_headers_are_refused_where_nobody_can_put_them_in_and_nothing_is_left(e2b):
    """Here the gateway of the provider is not the control plane's."""
    metadata = {"of": f"refused-{time.time_ns()}"}
    rules = {"example.org": [{"transform": {"headers": {"X-Key": "a"}}}]}
    network = {"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"], "rules": rules}
    with pytest.raises(SandboxException, match="501: no headers can be put into the requests"):
        e2b.Sandbox.create(network=network, metadata=metadata)
    assert ids(e2b.Sandbox.list(query=SandboxQuery(metadata=metadata))) == [[]]


def test_rules_are_changed_while_it_runs(live, made):
    """Against a machine next to this one, which is there all the time."""
    context = neighbour()
    address, port = live.do(context.__aenter__())
    dial = f"socket.create_connection(({address!r}, {port}), 3).makefile().read()"
    ask = f'python3 -c "import socket; print({dial}, end=str())" 2>/dev/null || echo none'
    try:
        box = made(timeout=60, network={"allow_out": [f"{address}/32"]})
        assert box.commands.run(ask).stdout == "neighbour\n"
        box.update_network({"allow_out": ["192.0.2.255"]})
        assert box.commands.run(ask).stdout == "none\n"
        box.update_network({"allow_out": [address, "example.org"]})
        assert box.commands.run(ask).stdout == "neighbour\n"
        box.update_network({"allow_internet_access": False})
        assert box.commands.run(ask).stdout == "none\n"
        assert box.get_info().allow_internet_access is False
        with pytest.raises(SandboxException, match="cannot be enforced here"):
            box.update_network({"egress_proxy": {"address": "proxy.example:1080"}})
        box.update_network({"allow_internet_access": True, "allow_out": ["0.0.0.0/0"]})
        assert box.commands.run(ask).stdout == "neighbour\n"
        assert box.get_info().allow_internet_access is True
    finally:
        live.do(context.__aexit__(None, None, None))


def test_user_ports_are_reached_by_host_name(live, made):
    box = made(timeout=60)
    box.commands.run("mkdir www; echo served > www/index.html")
    box.commands.run("python3 -m http.server 8000 -d www", background=True, timeout=0)
    host = box.get_host(8000)
    assert host.startswith(f"8000-{box.sandbox_id}.preview.localhost:")
    assert eventually(live, host, 200) == b"served\n"
    assert b"port is not open" in visit(live, box.get_host(8001))[1]
    box.kill()
    assert b"was not found" in visit(live, host)[1]


def test_a_private_port_needs_the_traffic_token(live, made):
    box = made(timeout=60, network={"allow_public_traffic": False})
    box.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    host = box.get_host(8000)
    status, body = visit(live, host)
    assert status == 403
    assert b"e2b-traffic-access-token" in body
    token = {"e2b-traffic-access-token": box.traffic_access_token}
    eventually(live, host, 200, **token)


def test_a_program_that_speaks_tls_itself(live, made):
    """With a certificate of its own making, which nobody verifies."""
    box = made(timeout=60, network={"https_ports": [8443]})
    box.commands.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
        "-subj /CN=mine -keyout key.pem -out cert.pem"
    )
    box.commands.run("echo by TLS > index.html")
    for port in (8443, 8444):
        serve = f"openssl s_server -accept {port} -cert cert.pem -key key.pem -WWW"
        box.commands.run(serve, background=True, timeout=0)
    assert eventually(live, box.get_host(8443), 200, path="/index.html") == b"by TLS\n"
    assert visit(live, box.get_host(8444), path="/index.html")[0] == 502
    assert box.get_info().network["https_ports"] == [8443]


def visit(live, host, path="/", **headers):
    """By its name, without asking anyone where that is."""
    request = urllib.request.Request(f"{live.url}{path}", headers={"Host": host, **headers})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def eventually(live, host, status, path="/", **headers):
    deadline = time.monotonic() + 15
    while True:
        found, body = visit(live, host, path, **headers)
        if found == status:
            return body
        assert time.monotonic() < deadline, body
        time.sleep(0.05)
