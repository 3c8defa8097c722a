"""Whom programs in a container trust, and that nothing of the host gets in on the way."""

from pathlib import Path

import pytest

from paddock.adapters.egress.authority import HOST_STORES, authorities
from paddock.adapters.providers.docker.provider import DockerProvider
from paddock.adapters.providers.docker.trust import CERTIFICATES, TRUST_ENV, together
from paddock.guest_client import Guest
from paddock.ports.provider import Ref, SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, Installation
from tests.upstreams import upstream

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("base_image")]
STORE = HOST_STORES[0]


async def does(provider: DockerProvider, ref: Ref, script: str) -> str:
    async with Guest(await provider.guest(ref)) as guest:
        done = await guest.exec(["sh", "-c", script], user="root", timeout=20)
        assert done.exit_code == 0, done.stderr
        return done.text


async def restarted(provider: DockerProvider, ref: Ref) -> str:
    """What its programs trust after a stop and a start."""
    await provider.stop(ref)
    await provider.start(ref)
    return await does(provider, ref, f"cat {CERTIFICATES}")


async def test_hosts_images_and_our_own_authorities_are_trusted(installation: Installation):
    async with installation.opened() as provider:
        made = await provider.create("trusts", SandboxSpec(template=BASE))
        assert provider.gateway is not None
        assert provider.gateway.authority is not None
        ours = provider.gateway.authority.certificate.strip()
        trusted = await does(provider, made.ref, f"cat {CERTIFICATES}")
        assert ours in trusted
        assert together(trusted, authorities()) == trusted
        env = await does(provider, made.ref, "env")
        assert all(f"{name}={CERTIFICATES}\n" in env for name in TRUST_ENV)
        # The image's own store is as it was, and a package may replace it.
        assert ours not in await does(provider, made.ref, f"cat {STORE}")

        # What somebody adds to it inside counts from the next start on.
        async with upstream("own.example") as there:
            own = together(there.certificate.read_text()).strip()
        await does(provider, made.ref, f"cat >> {STORE} <<'.'\n{own}\n.")
        assert own not in await does(provider, made.ref, f"cat {CERTIFICATES}")
        trusted = await restarted(provider, made.ref)
        assert own in trusted
        assert trusted.count(ours) == 1


async def test_what_somebody_has_set_is_left_alone(installation: Installation):
    async with installation.opened() as provider:
        mine = {"SSL_CERT_FILE": "/mine.pem", "PIP_CERT": ""}
        made = await provider.create("mine", SandboxSpec(template=BASE, env=mine))
        env = (await does(provider, made.ref, "env")).splitlines()
        assert {"SSL_CERT_FILE=/mine.pem", "PIP_CERT="} <= set(env)
        assert f"GIT_SSL_CAINFO={CERTIFICATES}" in env


async def test_nothing_of_it_is_in_a_snapshot(installation: Installation):
    async with installation.opened() as provider:
        made = await provider.create("whole", SandboxSpec(template=BASE))
        diff = await provider._life.engine.get(f"containers/{made.ref.id}/changes", "compare")
        assert not [each for each in diff or () if "certificates.pem" in each["Path"]]
        forked = await provider.fork(made.ref, "fork", SandboxSpec(template=""))
        assert "BEGIN CERTIFICATE" in await does(provider, forked.ref, f"cat {CERTIFICATES}")


async def test_a_store_that_is_a_trap_is_not_walked_into(
    installation: Installation, tmp_path: Path
):
    """Who was root inside before chose what lies there."""
    async with upstream("host.example") as there:
        secret = together(there.certificate.read_text()).strip()
    bait = tmp_path / "host.pem"
    bait.write_text(secret)
    traps = (
        f"ln -sf {bait} {STORE}",
        f"ln -sf /proc/1/root{bait} {STORE}",
        f"rm -f {STORE}; mkfifo {STORE}",
        f"rm -f {STORE}; mkdir {STORE}",
        f"rm -rf {STORE}; truncate -s 8G {STORE}",
        f"rm -f {STORE}; head -c 100000 /dev/urandom > {STORE}",
        "mv /etc/ssl /etc/ssl-away",
    )
    async with installation.opened() as provider:
        made = await provider.create("trap", SandboxSpec(template=BASE))
        for trap in traps:
            await does(provider, made.ref, trap)
            trusted = await restarted(provider, made.ref)
            assert secret not in trusted, trap
            assert trusted.count("BEGIN CERTIFICATE") > 1, trap


def test_only_certificates_are_taken_over_and_each_once():
    one = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----"
    other = one.replace("MIIB", "MIIC")
    key = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"
    assert together(f"# a name\n{one}\n{key}\n", "", f"{one}\r\n{other}") == f"{one}\n{other}\n"
