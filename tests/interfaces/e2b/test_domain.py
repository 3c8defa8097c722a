"""Domain mode: every sandbox at host names of its own, by TLS with a configured certificate."""

import json
import subprocess
import sys

import pytest

from paddock.settings import ServerConfig, Settings
from tests.harness.ports import free_port
from tests.interfaces.e2b.certificates import certificate_for, leading_here
from tests.interfaces.e2b.conftest import serving

pytestmark = [pytest.mark.timeout(90)]
DOMAIN = "sbx.test"
# In a process of its own: which authorities are trusted is read from the environment once.
SCRIPT = """
import json, sys
from e2b import E2B
key, domain, proxy = sys.argv[1:]
client = E2B(api_key=key, domain=domain, proxy=proxy)
box = client.Sandbox.create(timeout=60)
try:
    box.files.write("www/index.html", "served")
    behind = box.commands.run("python3 -m http.server 8000 -d www", background=True, timeout=0)
    box.commands.run("until curl -so /dev/null http://localhost:8000; do sleep 0.05; done")
    print(json.dumps({
        "said": box.commands.run("echo hello").stdout,
        "host": box.get_host(8000),
        "file": box.download_url("www/index.html", use_signature_expiration=60),
    }), flush=True)
    sys.stdin.readline()
finally:
    box.kill()
"""


def fetched(url: str, authority: str, proxy: str) -> str:
    command = ["curl", "-s", "-m", "10", "--retry", "10", "--retry-delay", "1"]
    command += ["--retry-all-errors", "-f", "--cacert", authority, "-x", proxy, "-p", url]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).stdout.decode()


def test_everything_is_reached_by_name_and_tls(tmp_path):
    authority, certificate = certificate_for(tmp_path, f"*.{DOMAIN}", DOMAIN)
    port = free_port()
    server = ServerConfig(
        preview_domain=DOMAIN, tls_certificate=certificate, tls_port=port, ssh_port=0
    )
    with serving(settings=Settings(server=server)) as live, leading_here() as proxy:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, live.key, f"{DOMAIN}:{port}", proxy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"SSL_CERT_FILE": str(authority), "PATH": "/usr/bin:/bin"},
            text=True,
        )
        try:
            found = json.loads(process.stdout.readline())
            assert found["said"] == "hello\n"
            assert found["host"].endswith(f".{DOMAIN}:{port}")
            assert fetched(f"https://{found['host']}/", str(authority), proxy) == "served"
            assert found["file"].startswith("https://49983-sbx")
            assert fetched(found["file"], str(authority), proxy) == "served"
        finally:
            process.communicate("\n", timeout=20)


MANY = """
import sys
from concurrent.futures import ThreadPoolExecutor
from e2b import E2B
key, domain, proxy, count = sys.argv[1:]
client = E2B(api_key=key, domain=domain, proxy=proxy)

def use(number):
    box = client.Sandbox.create(timeout=120)
    try:
        box.files.write("/data/number", str(number))
        assert box.files.read("/data/number") == str(number)
    finally:
        box.kill()

with ThreadPoolExecutor(4) as threads:
    print(sum(1 for _ in threads.map(use, range(int(count)))))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_client_uses_a_thousand_sandboxes(tmp_path):
    """Each has a host of its own, and a client keeps a connection for every one of them."""
    authority, certificate = certificate_for(tmp_path, f"*.{DOMAIN}", DOMAIN)
    port = free_port()
    server = ServerConfig(
        preview_domain=DOMAIN, tls_certificate=certificate, tls_port=port, ssh_port=0
    )
    with serving(settings=Settings(server=server)) as live, leading_here() as proxy:
        done = subprocess.run(
            [sys.executable, "-c", MANY, live.key, f"{DOMAIN}:{port}", proxy, "1000"],
            capture_output=True,
            env={"SSL_CERT_FILE": str(authority), "PATH": "/usr/bin:/bin"},
            timeout=580,
            text=True,
            check=False,
        )
    assert done.stdout == "1000\n", done.stderr
