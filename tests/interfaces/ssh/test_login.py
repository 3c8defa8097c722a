"""Who gets in by SSH, and who does not any more."""

import asyncio
import signal
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from paddock.interfaces.ssh.config import GatewayLimits
from paddock.interfaces.ssh.gateway import gateway
from paddock.interfaces.ssh.host_key import FILE, host_key
from paddock.testing.clock import ManualClock
from tests.harness.ports import free_port
from tests.interfaces.ssh.conftest import Door, open_door

pytestmark = pytest.mark.timeout(90)


@pytest.mark.proves("E7")
async def test_a_token_is_a_user_name_or_a_password(door):
    assert (await door.ssh("echo in", user=door.token)).text == "in\n"
    found = (await door.plane.admin.get(f"/v1/sandboxes/{door.box}")).body
    for name in (found["id"], found["name"]):
        assert (await door.with_password(name, door.token, "echo in")).text == "in\n"


@pytest.mark.proves("E7")
async def test_a_token_is_shown_only_when_asked_for_and_kept_nowhere(door):
    refused = await door.access(lasts_s=60)
    assert (refused.status, refused.error["code"]) == (400, "invalid_request")
    assert '"reveal": true' in refused.error["remediation"]
    listed = (await door.plane.admin.get(f"/v1/sandboxes/{door.box}/ssh")).body["items"]
    secret = door.token.partition(".")[2]
    assert secret not in str(listed)
    assert listed[0]["fingerprint"].startswith("SHA256:")
    kept = await door.plane.services.store.read(lambda tx: tx.ssh.get(listed[0]["id"]))
    assert secret not in (repr(kept), kept.digest)
    trail = await door.plane.admin.get("/v1/audit?limit=500")
    assert secret not in str(trail.body)


async def test_the_answer_says_all_that_a_client_needs(door):
    made = await door.access()
    assert made["port"] == door.port
    assert made["host"] == "127.0.0.1"
    assert made["command"] == f"ssh -p {door.port} {door.box}@127.0.0.1"
    scanned = await door.run("ssh-keyscan", "-p", str(door.port), "127.0.0.1")
    assert made["host_key"] in scanned.text


@pytest.mark.proves("E7")
async def test_a_key_lets_in_who_holds_it(door):
    path, public = await door.key("mine")
    made = await door.access(public_key=public)
    assert (made["proof"], made["token"]) == ("key", None)
    done = await door.run("ssh-keygen", "-l", "-f", str(path))
    assert made["fingerprint"] in done.text
    options = ("-i", str(path), "-oIdentitiesOnly=yes")
    assert (await door.ssh("echo in", user=door.box, options=options)).text == "in\n"
    other, _ = await door.key("other")
    done = await door.ssh("echo in", user=door.box, options=("-i", str(other), "-oBatchMode=yes"))
    assert (done.code, done.stdout) == (255, b"")
    refused = await door.access(public_key="ssh-ed25519 nonsense")
    assert (refused.status, refused.error["code"]) == (400, "invalid_request")


async def test_a_known_public_key_without_its_private_one_opens_nothing(door):
    """Asking whether a key would do is no proof that one has it."""
    _, public = await door.key("victim")
    await door.access(public_key=public)
    intruder = await door.key("intruder")
    (door.folder / "intruder.pub").write_text(public)
    done = await door.ssh(
        "echo in", user=door.box, options=("-i", str(intruder[0]), "-oBatchMode=yes")
    )
    assert (done.code, done.stdout) == (255, b"")


@pytest.mark.proves("E7")
async def test_a_wrong_token_is_told_so_and_no_more(door):
    wrong = door.token[:-4] + "AAAA"
    unknown = "ssh_" + "0" * 26 + "." + "x" * 43
    told = set()
    for token in (wrong, unknown):
        done = await door.ssh("echo in", user=token, options=("-oBatchMode=yes",))
        assert (done.code, done.stdout) == (255, b"")
        told.add("".join(line for line in done.said.splitlines() if line.startswith("paddock:")))
    assert len(told) == 1
    assert "this token is unknown here" in told.pop()
    done = await door.with_password(door.box, "tea and biscuits", "echo in")
    assert (done.code, done.stdout) == (255, b"")


@pytest.mark.proves("E7")
async def test_a_token_is_for_its_own_sandbox_only(door):
    other = await door.plane.admin.post("/v1/sandboxes", {"template": "plain"})
    done = await door.with_password(other["id"], door.token, "echo in")
    assert done.code == 255
    assert "not for a sandbox called" in done.said
    await door.plane.admin.delete(f"/v1/sandboxes/{other['id']}?force=true")


@pytest.mark.proves("E7")
async def test_an_expired_access_says_what_to_do(door):
    made = (await door.access()).body
    past = time.time() - 1

    def expire(tx):
        tx.ssh.replace(replace(tx.ssh.get(made["id"]), expires_at=past))

    await door.plane.services.store.write(expire)
    done = await door.ssh("echo in", user=made["token"], options=("-oBatchMode=yes",))
    assert (done.code, done.stdout) == (255, b"")
    assert "has expired" in done.said
    assert "paddock ssh" in done.said


@pytest.mark.proves("E7")
async def test_how_long_it_lasts_is_clamped(door):
    lasts = {}
    for asked in (1, 3600, 1e9):
        made = await door.access(reveal=True, lasts_s=asked)
        kept = await door.plane.services.store.read(lambda tx, one=made["id"]: tx.ssh.get(one))
        lasts[asked] = kept.expires_at - kept.created_at
    assert lasts == {1: pytest.approx(60), 3600: pytest.approx(3600), 1e9: pytest.approx(86400)}
    brief = await door.plane.member(lifetime_s=120)
    made = await door.access(brief)
    kept = await door.plane.services.store.read(lambda tx: tx.ssh.get(made["id"]))
    assert kept.expires_at - kept.created_at <= 120


async def test_who_may_only_look_gets_no_access(door):
    viewer = await door.plane.member(role="viewer")
    assert (await door.access(viewer)).status == 403
    assert (await viewer.get(f"/v1/sandboxes/{door.box}/ssh")).status == 403


@pytest.mark.proves("U1")
async def test_another_teams_sandbox_does_not_exist(door):
    others = await door.plane.team(f"others-{time.time_ns()}")
    assert (await door.access(others)).status == 404
    assert (await others.get(f"/v1/sandboxes/{door.box}/ssh")).status == 404
    assert (await others.delete(f"/v1/sandboxes/{door.box}/ssh")).status == 404
    theirs = await others.post("/v1/sandboxes", {"template": "plain"})
    made = await door.access(others, theirs["id"])
    # An access of another sandbox is none of this one, even for who has both.
    ours = (await door.plane.admin.get(f"/v1/sandboxes/{door.box}/ssh")).body["items"][0]["id"]
    answer = await others.delete(f"/v1/sandboxes/{theirs['id']}/ssh/{ours}")
    assert answer.status == 404
    done = await door.with_password(door.box, made["token"], "echo in")
    assert (done.code, done.stdout) == (255, b"")
    await others.delete(f"/v1/sandboxes/{theirs['id']}?force=true")


async def _stay(door, token):
    """Somebody who is in, and how long they stay."""
    process = await asyncio.create_subprocess_exec(
        "ssh",
        *door.options(),
        f"{token}@127.0.0.1",
        "echo in; exec sleep 60",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        assert await process.stdout.readline() == b"in\n"
    return process


async def _sent_away(process):
    async with asyncio.timeout(15):
        _, said = await process.communicate()
    return process.returncode, said.decode()


@pytest.mark.proves("E7")
async def test_who_is_in_when_it_is_revoked_is_sent_away(door):
    made = await door.access()
    visitor = await _stay(door, made["token"])
    ended = await door.plane.admin.delete(f"/v1/sandboxes/{door.box}/ssh/{made['id']}")
    assert ended["revoked_at"]
    code, said = await _sent_away(visitor)
    assert code == 255
    assert "was revoked" in said
    again = await door.ssh("true", user=made["token"], options=("-oBatchMode=yes",))
    assert (again.code, "was revoked" in again.said) == (255, True)
    assert (await door.ssh("true")).code == 0
    assert (await door.plane.admin.delete(f"/v1/sandboxes/{door.box}/ssh"))["revoked"] == 1
    assert (await door.ssh("true", options=("-oBatchMode=yes",))).code == 255


@pytest.mark.proves("E7")
async def test_it_ends_with_the_token_that_made_it(door):
    member = await door.plane.member()
    made = await door.access(member)
    visitor = await _stay(door, made["token"])
    await door.plane.admin.delete(f"/v1/tokens/{made['created_by']}")
    code, said = await _sent_away(visitor)
    assert code == 255
    assert "was revoked" in said
    assert (await door.ssh("true", user=made["token"], options=("-oBatchMode=yes",))).code == 255


@pytest.mark.proves("E7")
async def test_it_ends_with_the_sandbox(door):
    visitor = await _stay(door, door.token)
    await door.plane.admin.delete(f"/v1/sandboxes/{door.box}?force=true")
    code, _ = await _sent_away(visitor)
    assert code == 255
    done = await door.ssh("true", options=("-oBatchMode=yes",))
    assert (done.code, "was deleted" in done.said) == (255, True)


@pytest.mark.proves("U5")
async def test_what_happened_is_in_the_audit_log(door):
    assert (await door.ssh("true")).code == 0
    trail = (await door.plane.admin.get("/v1/audit?limit=500")).body["items"]
    ours = [each for each in trail if each["subject"] == door.box]
    assert [each["action"] for each in ours][-3:] == ["ssh.create", "ssh.login", "ssh.run"]
    assert ours[-2]["detail"]["from"] == "127.0.0.1"
    listed = (await door.plane.admin.get(f"/v1/sandboxes/{door.box}/ssh")).body["items"]
    assert listed[0]["used_at"] is not None


@asynccontextmanager
async def timed_door(plane, limits, clock):
    """A gateway whose clock is the test's."""
    address = ("127.0.0.1", free_port())
    ssh = plane.services.ssh
    with tempfile.TemporaryDirectory(prefix="pd-ssh-") as folder:
        key = host_key(Path(folder))
        async with gateway(
            address, key, accesses=ssh.accesses, visits=ssh.visits, clock=clock, limits=limits
        ) as port:
            yield Door(plane, port, Path(folder))


async def test_who_guesses_too_often_has_to_wait(plane):
    limits, clock = GatewayLimits(failures=3), ManualClock()
    async with timed_door(plane, limits, clock) as door:
        wrong = "ssh_" + "0" * 26 + ".wrong"
        for _ in range(3):
            await door.ssh("true", user=wrong, options=("-oBatchMode=yes",))
        clock.advance(limits.forget_failures_s - 1)
        done = await door.ssh("true", user=wrong, options=("-oBatchMode=yes",))
        assert "too many wrong tokens" in done.said
        assert "is unknown here" not in done.said
        clock.advance(1)
        done = await door.ssh("true", user=wrong, options=("-oBatchMode=yes",))
        assert "is unknown here" in done.said


async def test_strangers_do_not_stay_and_are_not_many(plane):
    limits = GatewayLimits(strangers=3, login_s=3.0)
    async with open_door(plane, limits) as door:
        silent = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(3)]
        for reader, _ in silent:
            assert (await reader.readline()).startswith(b"SSH-2.0-")
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        assert not any(reader.at_eof() for reader, _ in silent), "one more is sent away at once"
        for reader, writer in silent:
            async with asyncio.timeout(10):
                await reader.read()
            writer.close()
        done = await door.ssh("true", user="nobody", options=("-oBatchMode=yes",))
        assert "Permission denied" in done.said


async def test_the_host_key_is_made_once_and_for_its_owner_only(tmp_path):
    first = host_key(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert host_key(tmp_path).public_data == first.public_data
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    assert isinstance(first, asyncssh.SSHKey)


async def test_where_it_is_off_that_is_said(plane):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    gate, plane.services.ssh.gate.address = plane.services.ssh.gate.address, None
    try:
        answer = await plane.admin.post(f"/v1/sandboxes/{made['id']}/ssh", {"reveal": True})
    finally:
        plane.services.ssh.gate.address = gate
    assert answer.status == 501
    assert "ssh_port" in answer.error["remediation"]
    listed = await plane.admin.get(f"/v1/sandboxes/{made['id']}/ssh")
    assert listed["items"] == []
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")


async def test_the_gateway_takes_leave_of_its_visitors_and_does_not_wait_for_them(plane):
    made = await plane.admin.post("/v1/sandboxes", {"template": "plain"})
    async with open_door(plane) as door:
        door.box = made["id"]
        token = (await door.access())["token"]
        visitors = [await _stay(door, token) for _ in range(3)]
        # One that has stopped reading, and one that never said who it is.
        visitors[0].send_signal(signal.SIGSTOP)
        reader, silent = await asyncio.open_connection("127.0.0.1", door.port)
        assert (await reader.readline()).startswith(b"SSH-2.0-")
        began = time.monotonic()
    assert time.monotonic() - began < 30
    visitors[0].send_signal(signal.SIGCONT)
    for visitor in visitors:
        code, said = await _sent_away(visitor)
        assert code == 255
        assert "the server is stopping" in said
    async with asyncio.timeout(5):
        with suppress(ConnectionResetError):
            await reader.read()
    silent.close()
    await plane.admin.delete(f"/v1/sandboxes/{made['id']}?force=true")
