"""Templates that are built from code, by the unmodified SDK."""

import json
import os
import time
import urllib.request

import pytest
from e2b import (
    BuildException,
    FileUploadException,
    SandboxException,
    Template,
    TemplateBuildStatus,
    wait_for_port,
)

pytestmark = [pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def name():
    return f"app-{time.time_ns()}"


@pytest.fixture(scope="module")
def built(e2b, name, tmp_path_factory):
    context = tmp_path_factory.mktemp("context")
    (context / "app").mkdir()
    (context / "app" / "page.html").write_text("built")
    (context / "one.txt").write_text("one")
    (context / "a b.txt").write_text("spaced")
    (context / "src" / "deep").mkdir(parents=True)
    (context / "src" / "a.py").write_text("a")
    (context / "src" / "left.txt").write_text("no")
    (context / "src" / "deep" / "b.py").write_text("b")
    logs = []
    template = (
        Template(file_context_path=str(context))
        .from_base_image()
        .set_envs({"GREETING": "hello"})
        .copy("app", "/srv/app")
        .copy("one.txt", "two.txt", mode=0o600)
        .copy("a b.txt", "/srv/")
        .copy("src/**/*.py", "/srv/py")
        .copy("src/*.py", "/srv/flat/")
        .run_cmd("echo said; echo made > ~/made.txt")
        .run_cmd("mkdir /opt/rooted", user="root")
        .set_workdir("/srv/app")
        .set_start_cmd("python3 -m http.server 8123", wait_for_port(8123))
    )
    info = e2b.Template.build(template, name, cpu_count=1, memory_mb=512, on_build_logs=logs.append)
    return info, logs


def test_a_sandbox_begins_where_the_build_ended(e2b, built, name):
    box = e2b.Sandbox.create(name, timeout=60)
    try:
        assert box.files.read("/srv/app/page.html") == "built"
        assert box.files.read("/home/user/made.txt") == "made\n"
        assert box.commands.run("cat ~/two.txt; stat -c %a ~/two.txt").stdout == "one600\n"
        found = box.commands.run("cd /srv && find . -path ./app -prune -o -type f -print | sort")
        assert found.stdout.splitlines() == [
            "./a b.txt",
            "./flat/a.py",
            "./py/a.py",
            "./py/deep/b.py",
        ]
        assert box.commands.run("echo $GREETING; pwd; ls -d /opt/rooted").stdout == (
            "hello\n/srv/app\n/opt/rooted\n"
        )
        assert box.commands.run("curl -s http://localhost:8123/page.html").stdout == "built"
        info = box.get_info()
        assert (info.template_id, info.memory_mb) == (name, 512)
    finally:
        box.kill()


def test_a_copy_of_such_a_sandbox_is_as_the_build_left_it(e2b, built, name):
    boxes = [e2b.Sandbox.create(name, timeout=60)]
    snapshots = []
    try:
        for _ in range(2):
            snapshots.append(boxes[-1].create_snapshot().snapshot_id)
            boxes.append(e2b.Sandbox.create(snapshots[-1], timeout=60))
        for copy in boxes[1:]:
            asked = "pwd; curl -s http://localhost:8123/page.html"
            assert copy.commands.run(asked).stdout == "/srv/app\nbuilt"
    finally:
        for box in boxes:
            box.kill()
        for snapshot in snapshots:
            e2b.Sandbox.delete_snapshot(snapshot)


def test_a_template_built_from_code_is_listed_and_used_by_our_own_interface(live, built, name):
    admin = live.plane.admin
    listed = {each["name"]: each for each in live.do(admin.get("/v1/templates"))["items"]}
    assert (listed[name]["owner"], listed[name]["built"]) == ("team", True)
    assert listed[name]["workdir"] == "/srv/app"
    assert live.do(admin.get(f"/v1/templates/{name}"))["tags"] == ["default"]
    box = live.do(admin.post("/v1/sandboxes", {"template": name}))
    assert (box.status, box["state"]) == (201, "running"), box.body
    try:
        script = "echo $GREETING; pwd; curl -s http://localhost:8123/page.html"
        ask = {"cmd": ["sh", "-c", script]}
        path = f"/v1/sandboxes/{box['id']}"
        assert live.do(admin.post(f"{path}/exec", ask))["stdout"] == "hello\n/srv/app\nbuilt"
        live.do(admin.post(f"{path}/stop"))
        live.do(admin.post(f"{path}/start"))
        again = live.do(admin.post(f"{path}/exec", ask))["stdout"]
        assert again == "hello\n/srv/app\nbuilt", "also after a restart"
    finally:
        live.do(admin.delete(f"/v1/sandboxes/{box['id']}?force=true"))
    unknown = live.do(admin.post("/v1/sandboxes", {"template": f"{name}-none"}))
    assert unknown.status == 404


def test_what_cannot_start_is_found_while_it_is_built(e2b, name):
    template = Template().from_base_image().set_start_cmd("echo begun; exit 3", "false")
    with pytest.raises(BuildException, match="exit status 3"):
        e2b.Template.build(template, f"{name}-dead")
    with pytest.raises(Exception, match="404"):
        e2b.Sandbox.create(f"{name}-dead", timeout=60)


def test_logs_are_told_as_they_come(built):
    _, logs = built
    said = [entry.message for entry in logs]
    assert "said" in said
    assert any("RUN echo said" in line for line in said)


def test_names_and_tags_are_found_given_and_taken_away(e2b, built, name):
    assert e2b.Template.exists(name) is True
    assert e2b.Template.exists("never-built") is False
    assert e2b.Template.assign_tags(f"{name}:default", ["v1", "stable"]).tags == ["v1", "stable"]
    assert {each.tag for each in e2b.Template.get_tags(name)} == {"default", "v1", "stable"}
    box = e2b.Sandbox.create(f"{name}:v1", timeout=60)
    box.kill()
    e2b.Template.remove_tags(name, ["v1"])
    with pytest.raises(Exception, match="404"):
        e2b.Sandbox.create(f"{name}:v1", timeout=60)
    with pytest.raises(Exception, match="no tag"):
        e2b.Template.assign_tags(f"{name}:default", ["not a tag!"])


def test_a_template_is_built_on_another(e2b, built, name):
    template = Template().from_template(name).run_cmd("echo more > /srv/app/more.txt", user="root")
    e2b.Template.build(template, f"{name}-more")
    box = e2b.Sandbox.create(f"{name}-more", timeout=60)
    try:
        assert box.files.read("/srv/app/more.txt") == "more\n"
        assert box.commands.run("echo $GREETING; pwd").stdout == "hello\n/srv/app\n"
    finally:
        box.kill()


def test_a_step_that_fails_is_named(e2b):
    template = Template().from_base_image().run_cmd("true").run_cmd("echo why; exit 7")
    logs = []
    with pytest.raises(
        BuildException, match=r"failed to run command 'echo why; exit 7': exit status 7"
    ):
        e2b.Template.build(template, "fails", on_build_logs=logs.append)
    said = [entry.message for entry in logs]
    assert "why" in said
    assert "`echo why; exit 7` ended with exit status 7" in said
    with pytest.raises(BuildException, match="invalid username: 'nobody-here'"):
        e2b.Template.build(Template().from_base_image().run_cmd("id", user="nobody-here"), "fails")


def test_another_team_has_none_of_it(live, built, name):
    other = live.client(api_key=live.do(live.plane.team(f"tpl-{time.time_ns()}")).token)
    assert other.Template.exists(name) is False
    with pytest.raises(Exception, match="404"):
        other.Sandbox.create(name, timeout=60)


def test_a_build_goes_on_behind_and_is_asked_about(e2b):
    name = f"behind-{time.time_ns()}"
    template = Template().from_dockerfile(
        "FROM e2bdev/base\nENV SEASON=autumn\nRUN echo made > /home/user/made\nWORKDIR /home/user\n"
    )
    info = e2b.Template.build_in_background(template.skip_cache(), name)
    deadline = time.monotonic() + 60
    while (status := e2b.Template.get_build_status(info)).status.value in ("waiting", "building"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert status.status.value == "ready", status
    assert e2b.Template.exists(name)
    assert e2b.Template.alias_exists(name)
    box = e2b.Sandbox.create(name, timeout=60)
    try:
        assert box.commands.run("cat made; echo $SEASON").stdout == "made\nautumn\n"
    finally:
        box.kill()


def test_a_name_means_one_thing(e2b):
    name, other = f"one-{time.time_ns()}", f"other-{time.time_ns()}"
    e2b.Template.build(Template().from_base_image().run_cmd("echo built > ~/f"), name)
    box = e2b.Sandbox.create(timeout=60)
    try:
        with pytest.raises(SandboxException, match="name of a template"):
            box.create_snapshot(name=name)
        taken = box.create_snapshot(name=other)
    finally:
        box.kill()
    with pytest.raises(BuildException, match="name of a snapshot"):
        e2b.Template.build(Template().from_base_image().run_cmd("true"), other)
    assert e2b.Sandbox.delete_snapshot(f"{other}:v1") is False
    assert e2b.Sandbox.delete_snapshot(taken.snapshot_id) is True
    assert e2b.Template.exists(name) is True


def test_what_is_deleted_by_a_tag_is_that_tag(e2b):
    name = f"tags-{time.time_ns()}"
    template = Template().from_base_image().run_cmd("true")
    e2b.Template.build(template, f"{name}:v1", tags=["x"])
    e2b.Template.build(template, f"{name}:v2")
    assert {each.tag for each in e2b.Template.get_tags(name)} == {"v1", "x", "v2"}
    assert e2b.Sandbox.delete_snapshot(f"{name}:v1") is True
    assert e2b.Sandbox.delete_snapshot(f"{name}:v1") is False
    assert {each.tag for each in e2b.Template.get_tags(name)} == {"x", "v2"}
    e2b.Sandbox.create(f"{name}:v2", timeout=60).kill()


def test_what_builds_are_made_of_is_not_shown_and_goes_with_them(e2b, live):
    name = f"hidden-{time.time_ns()}"

    def snapshots() -> set[str]:
        found = live.do(live.plane.admin.get("/v1/snapshots?limit=500"))["items"]
        return {each["name"] for each in found if each["name"].startswith("build-")}

    before = snapshots()
    slow = Template().from_base_image().run_cmd("while ! [ -e /tmp/go ]; do sleep 0.1; done")
    info = e2b.Template.build_in_background(slow, name)
    (building,) = wait_for(lambda: building_in(live))
    assert building["id"].replace("_", "") not in {
        each.sandbox_id for each in e2b.Sandbox.list().next_items()
    }
    assert e2b.Sandbox.kill(building["id"]) is False
    path = f"/v1/sandboxes/{building['id']}/exec"
    wait_for(lambda: live.do(live.plane.admin.post(path, {"cmd": ["touch", "/tmp/go"]})))
    wait_for(lambda: e2b.Template.get_build_status(info).status == TemplateBuildStatus.READY)
    e2b.Template.build(Template().from_base_image().run_cmd("true"), name)
    (left,) = wait_for(lambda: len(found := snapshots() - before) == 1 and found)
    assert left not in {
        each.snapshot_id.partition(":")[0] for each in e2b.Sandbox.list_snapshots().next_items()
    }
    assert e2b.Sandbox.delete_snapshot(left) is False
    e2b.Sandbox.create(name, timeout=60).kill()


def building_in(live) -> list[dict]:
    found = live.do(live.plane.admin.get("/v1/sandboxes?state=running"))["items"]
    return [each for each in found if "paddock.build" in each["labels"]]


def wait_for(look, seconds: float = 60):
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.1)
    return found


def test_a_team_at_its_quota_makes_and_uploads_no_more_and_files_are_nobody_elses(live, tmp_path):
    """Issue: quotas per team; unlimited E2B build files, whose content must match their hash."""
    (tmp_path / "large.bin").write_bytes(os.urandom(3 << 20))
    team = f"e2b-quota-{time.time_ns()}"
    client = live.do(live.plane.team(team))
    e2b = live.client(api_key=client.token)
    template = (
        Template(file_context_path=str(tmp_path)).from_base_image().copy("large.bin", "/srv/")
    )

    def limit(**limits):
        path = f"/v1/teams/{team}/quota"
        assert live.do(live.plane.admin.call("PATCH", path, limits)).status == 200

    limit(disk_mib=2)
    with pytest.raises(FileUploadException, match="429"):
        e2b.Template.build(template, "large")
    place = live.plane.place / "data" / "build-files"
    assert not [each for each in place.rglob("*") if each.stat().st_size > 1 << 20]
    limit(disk_mib=None, sandboxes=0)
    with pytest.raises(SandboxException, match="sandboxes"):
        e2b.Sandbox.create("base", timeout=60)
    with pytest.raises(BuildException, match="sandboxes"):
        e2b.Template.build(template, "large")
    (mine,) = [each for each in place.rglob("*") if each.stat().st_size > 1 << 20]
    other = live.do(client.post("/v1/tokens", {"name": "colleague", "role": "member"}))
    with pytest.raises(BuildException, match="sandboxes"):
        live.client(api_key=other["token"]).Template.build(template, "large")
    files = {each.name for each in mine.parent.iterdir()}
    assert len(files) == 2, "a colleague's build uses what the colleague has handed in"


MCP_GATEWAY = """#!/bin/bash
mkdir -p /etc/mcp-gateway /srv/gateway
echo "$2" > /srv/gateway/mcp
printf %s "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
nohup python3 -m http.server 50005 -d /srv/gateway > /dev/null 2>&1 &
until (echo > /dev/tcp/localhost/50005) 2> /dev/null; do sleep 0.05; done
"""


def test_a_template_with_an_mcp_gateway_is_used_as_at_e2b(e2b, live, tmp_path):
    (tmp_path / "mcp-gateway").write_text(MCP_GATEWAY)
    gateway = Template(file_context_path=str(tmp_path)).from_base_image()
    gateway = gateway.copy("mcp-gateway", "/usr/local/bin/mcp-gateway", user="root", mode=0o755)
    e2b.Template.build(gateway, "mcp-gateway")
    box = e2b.Sandbox.create(mcp={"duckduckgo": {}}, timeout=60)
    try:
        assert box.get_mcp_url().endswith("/mcp")
        assert box.get_mcp_token() == box.files.read("/etc/mcp-gateway/.token", user="root")
        headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "50005"}
        asked = urllib.request.Request(f"{live.url}/mcp", None, headers)
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert json.loads(answer.read()) == {"duckduckgo": {}}
    finally:
        box.kill()


def test_mcp_without_its_template_says_what_is_missing(e2b):
    with pytest.raises(SandboxException, match=r"404: .*mcp-gateway"):
        e2b.Sandbox.create("mcp-gateway:none", mcp={"duckduckgo": {}})
