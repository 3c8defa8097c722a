"""The parts that need no engine: addresses, names, labels, the order for a container."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from paddock.adapters.providers.docker import checks, packed, records
from paddock.adapters.providers.docker import container as containers
from paddock.adapters.providers.docker.address import EngineAddress
from paddock.adapters.providers.docker.container import ContainerSpec, MainProcess
from paddock.adapters.providers.docker.engine import About, Engine
from paddock.adapters.providers.docker.joined import control_group
from paddock.adapters.providers.docker.names import Names, template_image
from paddock.adapters.providers.docker.records import Container, Defaults, Maker, SandboxRecord
from paddock.adapters.providers.host import seccomp
from paddock.adapters.providers.host.cgroups import Hierarchies
from paddock.domain.errors import Broken, InvalidRequest
from paddock.domain.sandbox import Resources, SandboxState
from paddock.ports.provider import Status

RECORD = SandboxRecord(
    key="key \N{SNOWMAN}",
    fingerprint="f",
    defaults=Defaults("base", {"A": "$HOME \"'\\\n"}),
    labels={"a": "b"},
    resources=Resources(),
    created_at=1.5,
    guest="joined",
    maker=Maker("host", "/run", "id"),
    token="t",
)


@pytest.mark.parametrize(
    ("text", "socket", "url"),
    [
        ("unix:///var/run/docker.sock", "/var/run/docker.sock", ""),
        ("tcp://10.0.0.1:2375", "", "http://10.0.0.1:2375"),
        ("tcp://engine", "", "http://engine:2375"),
        ("https://engine:9999", "", "https://engine:9999"),
    ],
)
def test_an_address_is_a_socket_or_a_url(text: str, socket: str, url: str) -> None:
    address = EngineAddress.parse(text, {})
    assert (address.socket, address.url) == (socket, url)


@pytest.mark.parametrize(
    "text", ["ssh://user@host", "docker", "unix://relative", "tcp://", "npipe:x"]
)
def test_an_address_of_another_kind_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(InvalidRequest, match="neither a unix socket nor a TCP") as caught:
        EngineAddress.parse(text, {})
    assert "ssh -nNT -L" in caught.value.remediation


def test_what_was_asked_for_comes_before_the_environment() -> None:
    environ = {"DOCKER_HOST": "tcp://environment:1"}
    assert EngineAddress.find("tcp://wish:1", environ).url == "http://wish:1"
    assert EngineAddress.find("", environ).url == "http://environment:1"
    assert EngineAddress.find("", {}).socket.endswith(".sock")


def test_tls_is_asked_for_as_docker_does_and_needs_its_files(tmp_path: Path) -> None:
    environ = {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    address = EngineAddress.parse("tcp://engine", environ)
    assert address.url == "https://engine:2376"
    with pytest.raises(InvalidRequest, match=r"cannot be used"):
        address.tls()


def test_names_fit_where_they_are_used() -> None:
    names = Names("any installation")
    assert len(names.bridge) <= 15
    assert names.container("a") == names.container("a") != names.container("b")
    assert Names("other").container("a") != names.container("a")
    assert names.container("\udcff" * 1000).isascii()
    assert template_image("a.b_c--d", "123") == "paddock/a-b-c-d:123"


@pytest.mark.parametrize("as_lines", [False, True])
def test_a_record_survives_labels_and_lines_of_a_dockerfile(as_lines: bool) -> None:
    marks = records.labels("mine", records.SANDBOX, RECORD)
    if as_lines:
        lines = records.instructions(marks)
        assert not any(sign in line for line in lines for sign in "$\"'\\\n")
        marks = dict(line.removeprefix("LABEL ").split("=", 1) for line in lines)
    assert records.read(marks, SandboxRecord, "here") == RECORD


@pytest.mark.parametrize("damage", [None, {}, {records.RECORD: "{}"}, {records.RECORD: "%%%"}])
def test_a_damaged_label_names_the_thing(damage: dict[str, str] | None) -> None:
    with pytest.raises(Broken, match=r"label paddock\.record of container x cannot be read"):
        records.read(damage, SandboxRecord, "container x")


def container(status: str = "running", pid: int = 42) -> Container:
    return Container.of(
        {
            "Id": "c" * 64,
            "Name": "/paddock-x",
            "Image": "sha256:1",
            "State": {"Status": status, "Pid": pid, "StartedAt": "2026-01-02T03:04:05.123456789Z"},
            "Config": {"Labels": records.labels("mine", records.SANDBOX, RECORD)},
            "NetworkSettings": {"Networks": None},
        }
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("running", SandboxState.RUNNING),
        ("paused", SandboxState.PAUSED),
        ("exited", SandboxState.STOPPED),
        ("created", SandboxState.STOPPED),
        ("dead", SandboxState.STOPPED),
        ("removing", SandboxState.DELETING),
    ],
)
def test_every_status_of_an_engine_is_a_state(status: str, state: SandboxState) -> None:
    assert container(status).state is state


def test_control_groups_are_where_the_kernel_says_also_below_others(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text(
        f"3:memory:/outer/deep/docker/{'c' * 64}\n2:cpu,cpuacct:/docker/{'c' * 64}\n0::/other\n"
    )
    host = Hierarchies(
        None,
        (
            (frozenset({"memory"}), Path("/cg/memory")),
            (frozenset({"cpu", "cpuacct"}), Path("/cg/cpu")),
        ),
    )
    group = control_group(container(), host, tmp_path)
    assert group.accounting_files() == {
        "memory.oom_control": f"/cg/memory/outer/deep/docker/{'c' * 64}/memory.oom_control",
        "memory.usage_in_bytes": f"/cg/memory/outer/deep/docker/{'c' * 64}/memory.usage_in_bytes",
        "memory.limit_in_bytes": f"/cg/memory/outer/deep/docker/{'c' * 64}/memory.limit_in_bytes",
        "cpuacct.usage": f"/cg/cpu/docker/{'c' * 64}/cpuacct.usage",
    }
    (tmp_path / "42" / "cgroup").write_text(f"0::/system.slice/docker-{'c' * 64}.scope\n")
    unified = control_group(container(), Hierarchies(Path("/cg")), tmp_path)
    assert unified.directories() == (Path(f"/cg/system.slice/docker-{'c' * 64}.scope"),)


def test_a_process_of_another_container_or_host_is_not_entered(tmp_path: Path) -> None:
    host = Hierarchies(Path("/cg"))
    with pytest.raises(Broken, match="not seen on this host") as caught:
        control_group(container(), host, tmp_path)
    assert "packed" in caught.value.remediation
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text("0::/init.scope\n")
    with pytest.raises(Broken, match="does not belong to container"):
        control_group(container(), host, tmp_path)


def order(**changes: object) -> dict[str, object]:
    spec = ContainerSpec(
        image="i",
        labels={},
        resources=Resources(cpus=0.25, memory_mib=100, disk_mib=200, pids=30),
        main=MainProcess(("init", "-P"), (containers.bind("/host/init", "/init"),)),
        network="none",
        nofile=1000,
        seccomp=containers.seccomp_profile(),
        **changes,  # type: ignore[arg-type]
    )
    built: dict[str, object] = containers.build(spec)["HostConfig"]
    return built


@pytest.mark.proves("P10", "P13")
def test_an_order_drops_everything_and_limits_everything() -> None:
    host = order()
    assert host["CapDrop"] == ["ALL"]
    assert set(host["CapAdd"]) == set(containers.CAPABILITIES)  # type: ignore[call-overload]
    assert host["NanoCpus"] == 250_000_000
    assert host["Memory"] == host["MemorySwap"] == 100 << 20
    assert host["PidsLimit"] == 30
    assert "StorageOpt" not in host
    assert "CpusetCpus" not in host
    assert order(cpus="1")["CpusetCpus"] == "1"
    assert order(size_mib=200)["StorageOpt"] == {"size": "200m"}
    assert set(order()["Tmpfs"]) == {"/run"}  # type: ignore[call-overload]
    assert set(order(tmp_mib=64)["Tmpfs"]) == {"/run", "/tmp"}  # type: ignore[call-overload]


def test_the_filter_is_that_of_the_local_provider() -> None:
    ours, local = json.loads(containers.seccomp_profile()), seccomp.oci_profile()
    assert ours["syscalls"][: len(local["syscalls"])] == local["syscalls"]
    assert ours["defaultAction"] == local["defaultAction"]
    (added,) = ours["syscalls"][len(local["syscalls"]) :]
    assert added == {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}
    assert "clone3" not in seccomp.ALLOWED + seccomp.REFUSED


@pytest.mark.proves("P4")
@pytest.mark.parametrize(
    ("podman", "info", "found"),
    [
        (False, {"ExperimentalBuild": True}, "only in the container that it was taken of; here: "),
        (False, {"ExperimentalBuild": True}, "of which it is one, are on"),
        (False, {}, "of which it is one, are off"),
        (True, {}, "with a packed one it is not tried"),
    ],
)
def test_why_memory_does_not_go_to_disk_is_said_with_what_the_engine_has(
    podman: bool, info: dict[str, bool], found: str
) -> None:
    engine = Engine(EngineAddress.parse("unix:///run/engine.sock", {}))
    engine.about = About("1.47", "an engine", podman, info)
    finding = checks.checkpoint(engine)
    assert (finding.status, finding.name) == (Status.DEGRADED, "checkpoint to disk")
    assert found in finding.found
    reason = finding.found.removeprefix("off: ").partition(";")[0]
    assert reason in checks.no_checkpoint(engine).message


def test_an_archive_for_a_container_has_no_padding() -> None:
    """Podman reads no further than the end of the archive, and what comes after it may fail."""
    made = packed._archive({"token": (0o600, b"x" * tarfile.BLOCKSIZE)})
    assert made[-1025:] == b"x" + bytes(2 * tarfile.BLOCKSIZE)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        assert archive.getnames()[-1] == "opt/paddock/token"
