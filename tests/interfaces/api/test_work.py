"""What was made in a sandbox, who else made it, and that it is not lost unseen."""

from contextlib import asynccontextmanager

import pytest

BEGIN = """
set -e; cd; mkdir -p w/sub && cd w && git init -q .
git config user.email a@example.org && git config user.name a
echo '*.log' > .gitignore; echo one > kept; echo two > edited; echo three > sub/removed
git add -A && git commit -qm base && git rev-parse 'HEAD^{tree}'
"""


@asynccontextmanager
async def made(client, home, **wish):
    """A sandbox with work of its own; the reference provider's sandboxes share one home."""
    box = (await client.post("/v1/sandboxes", {"template": "plain", **wish})).body
    try:
        yield Box(client, box, f"{home}/{box['id']}")
    finally:
        await client.delete(f"/v1/sandboxes/{box['id']}?force=true")


class Box:
    def __init__(self, client, info, home):
        self.client, self.info, self.home = client, info, home
        self.path = f"/v1/sandboxes/{info['id']}"

    async def sh(self, script):
        env = {"HOME": self.home}
        script = f'mkdir -p "$HOME"; cd "$HOME"; {script}'
        ran = await self.client.post(f"{self.path}/exec", {"cmd": ["sh", "-c", script], "env": env})
        assert ran["exit_code"] == 0, ran["stderr"]
        return ran["stdout"].strip()

    async def begin(self):
        self.base = await self.sh(BEGIN)
        work = {"directory": f"{self.home}/w", "base": self.base}
        changed = await self.client.call("PATCH", self.path, {"work": work})
        assert changed["work"] == work
        return self

    async def made(self):
        seen = await self.client.get(f"{self.path}/work")
        assert seen.status == 200, seen.body
        return seen

    async def kinds(self):
        return {each["path"]: each["kind"] for each in (await self.made())["changes"]}


@pytest.fixture
def place(tmp_path):
    return str(tmp_path)


async def test_what_is_committed_what_is_not_and_what_is_new_are_all_told(plane, place):
    async with made(plane.admin, place) as box:
        await box.begin()
        before = await box.made()
        assert (before["changes"], before["tree"]) == ([], box.base)
        await box.sh(
            "cd w; echo more >> edited; git rm -q sub/removed; git commit -qam done;"
            "echo new > 'ü n\newline'; echo x > a.log; printf x > \"$(printf 'b\\377')\""
        )
        assert await box.kinds() == {
            "edited": "changed",
            "sub/removed": "removed",
            "ü n\newline": "added",
            "b\udcff": "added",
        }
        left = await box.sh("cd w; git status --porcelain | wc -l; git count-objects")
        assert (await box.made())["tree"] != box.base
        assert await box.sh("cd w; git status --porcelain | wc -l; git count-objects") == left


@pytest.mark.proves("L6")
async def test_work_is_not_deleted_until_it_is_safe_elsewhere_or_forced(plane, place):
    async with made(plane.admin, place) as box:
        await box.begin()
        await box.sh("cd w; for i in 1 2 3 4 5 6 7; do echo $i > f$i; done")
        refused = await plane.admin.delete(box.path)
        assert (refused.status, refused.error["code"]) == (409, "conflict")
        assert "7 changed files: f1, f2, f3, f4, f5 and 2 more" in refused.error["message"]
        tree = (await box.made())["tree"]
        work = {"directory": f"{box.home}/w", "base": tree}
        await plane.admin.call("PATCH", box.path, {"work": work})
        await box.sh("cd w; echo late > late")
        assert "late" not in str((await plane.admin.delete(box.path)).error["remediation"])
        assert (await plane.admin.get(box.path))["state"] == "running"
        await box.sh("cd w; rm late")
        assert (await plane.admin.delete(box.path))["state"] == "deleted"


@pytest.mark.proves("L6")
async def test_what_cannot_be_seen_counts_as_work(plane, place):
    async with made(plane.admin, place) as box:
        await box.begin()
        await plane.admin.post(f"{box.path}/stop")
        refused = await plane.admin.delete(box.path)
        assert "cannot be seen while it is stopped" in refused.error["message"]
        await plane.admin.post(f"{box.path}/start")
        await box.sh("rm -rf w/.git")
        refused = await plane.admin.delete(box.path)
        assert (refused.status, "no git work tree" in refused.error["message"]) == (409, True)
        assert (await plane.admin.delete(f"{box.path}?force=true"))["state"] == "deleted"


@pytest.mark.proves("L16")
async def test_a_file_that_several_have_edited_is_reported(plane, place):
    wish = {"identity": "acme/shop#1", "another": True}
    async with (
        made(plane.admin, place, **wish) as one,
        made(plane.admin, place, **wish) as two,
        made(plane.admin, place, **wish) as blank,
    ):
        await one.begin()
        await two.begin()
        await one.sh("cd w; echo mine > edited; echo alike > both; echo 1 > only-one")
        await two.sh("cd w; rm edited; echo alike > both; git add both; git commit -qm both")
        told = await plane.admin.get("/v1/groups/acme%2Fshop%231/overlaps")
        assert told.status == 200, told.body
        assert told["identity"] == "acme/shop#1"
        found = {each["path"]: each for each in told["overlaps"]}
        assert set(found) == {"edited", "both"}
        assert (found["both"]["same"], found["edited"]["same"]) == (True, False)
        edits = {each["name"]: each["kind"] for each in found["edited"]["edits"]}
        assert edits == {one.info["name"]: "changed", two.info["name"]: "removed"}
        members = {each["name"]: each for each in told["members"]}
        assert members[one.info["name"]]["changes"] == 3
        assert members[blank.info["name"]]["changes"] is None
        assert "no directory project" in members[blank.info["name"]]["why"]
        stranger = await plane.team("groups")
        assert (await stranger.get("/v1/groups/acme%2Fshop%231/overlaps")).status == 404


async def test_a_clone_began_where_its_branch_left_the_origin(plane, place):
    async with made(plane.admin, place) as box:
        await box.begin()
        await box.sh(
            "git clone -q w clone; cd clone; echo x > made; git add made;"
            "git -c user.name=a -c user.email=a@example.org commit -qm made"
        )
        work = {"directory": f"{box.home}/clone"}
        await plane.admin.call("PATCH", box.path, {"work": work})
        assert await box.kinds() == {"made": "added"}
        assert (await plane.admin.delete(box.path))["state"] == "deleted"


@pytest.mark.parametrize("work", [{"base": "HEAD"}, {"base": "--help"}, {"directory": ""}], ids=str)
async def test_a_base_is_an_id(plane, box, work):
    answer = await plane.admin.call("PATCH", f"/v1/sandboxes/{box['id']}", {"work": work})
    assert answer.status == 400
