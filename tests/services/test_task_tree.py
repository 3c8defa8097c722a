"""What an agent does to the repository that it works in changes nothing of what is kept of it."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paddock.domain.errors import Conflict
from paddock.domain.guest import CommandResult
from paddock.services.task_tree import Tree


@dataclass
class Here:
    """The scripts are run on this host, with a home of their own."""

    home: Path

    async def exec(self, argv, *, env, stdin, timeout, max_output):
        around = {"PATH": os.environ["PATH"], "HOME": str(self.home), **env}
        ran = subprocess.run(
            argv, env=around, input=stdin, timeout=timeout, capture_output=True, check=False
        )
        cut = len(ran.stdout) > max_output
        return CommandResult(ran.returncode, ran.stdout[:max_output], ran.stderr, truncated=cut)


class Work:
    """A workspace and what an agent does there."""

    def __init__(self, place):
        self.home, self.directory = place / "home", place / "home" / "work"
        self.directory.mkdir(parents=True)
        self.before = self.after = ""

    @property
    def tree(self):
        return Tree(Here(self.home), str(self.directory), "tsk_1", self.before, self.after)

    def run(self, script):
        who = {f"GIT_{role}_{what}": "u" for role in ("AUTHOR", "COMMITTER") for what in ("NAME",)}
        mail = {"GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_EMAIL": "u@x"}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **who, **mail}
        command = ("sh", "-ec", script)
        ran = subprocess.run(
            command, cwd=self.directory, env=env, check=True, capture_output=True, timeout=60
        )
        return ran.stdout.decode()

    async def begin(self, script=""):
        self.run(script)
        self.before = await self.tree.keep("before")

    async def end(self, script):
        self.run(script)
        self.after = await self.tree.keep("after")
        return {each.path: each.kind for each in await self.tree.changes()}

    def read(self, name):
        path = self.directory / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path)


REPOSITORY = "git init -q -b main . && echo a > a && git add a && git commit -qm 0;"


@pytest.mark.proves("T9")
@pytest.mark.parametrize(
    "made, does",
    [
        ("echo a > a", "git init -q . && git add -A && git commit -qm x"),
        (REPOSITORY, "rm -rf .git"),
        (REPOSITORY, "rm -rf .git; git init -q ."),
        (REPOSITORY, "git update-ref refs/paddock/tsk_1/before HEAD; git gc -q --prune=now"),
        (
            "echo a > a",
            "cd ~/.paddock/trees/*.git; git hash-object -t tree -w /dev/null >/dev/null; "
            "fake=$(git commit-tree -m x 4b825dc642cb6eb9a060e54bf8d69288fbee4904);"
            "git update-ref refs/paddock/tsk_1/before $fake",
        ),
    ],
    ids=["makes-one", "removes-it", "makes-another", "moves-a-ref", "moves-ours"],
)
async def test_whatever_becomes_of_the_repository_the_diff_and_the_revert_are_true(
    work, made, does
):
    await work.begin(made)
    changed = await work.end(f"echo b > a; echo n > new; {does}")
    assert changed == {"a": "changed", "new": "added"}
    text, _ = await work.tree.diff()
    assert b"-a\n+b\n" in text
    await work.tree.revert()
    assert (work.read("a"), work.read("new")) == ("a\n", "")


@pytest.mark.parametrize("commits", ["", "&& git add x && git commit -qm x"])
async def test_files_in_repositories_within_are_plain_files(work, commits):
    await work.begin(
        "mkdir sub && cd sub && git init -q . && echo a > a && git add a && git commit -qm 0"
    )
    changed = await work.end(
        "echo b > sub/a; mkdir -p 'other one/x'; cd 'other one' && git init -q . && echo n > x/n "
        "&& mkdir in && cd in && git init -q . && echo deep > deep; cd ..; true " + commits
    )
    assert changed == {
        "sub/a": "changed",
        "other one/x/n": "added",
        "other one/in/deep": "added",
    }
    await work.tree.revert()
    assert (work.read("sub/a"), work.read("other one/x/n")) == ("a\n", "")
    assert work.run("git -C sub log --format=%s") == "0\n"


@pytest.mark.proves("T9")
async def test_branch_and_index_of_the_user_come_back_and_nothing_is_lost(work):
    await work.begin(REPOSITORY + "echo loose > loose")
    assert work.run("git status --short") == "?? loose\n"
    await work.end("git checkout -qb mine; echo b > a; git add -A; git commit -qm mine")
    assert await work.tree.drift("before") == (["a", "HEAD"], "")
    await work.tree.revert()
    assert work.run("git branch --show-current; git log --format=%s") == "main\n0\n"
    assert work.run("git status --short") == "?? loose\n"
    kept = work.run("git log --format=%s -1 $(git for-each-ref --format='%(refname)' refs/paddock)")
    assert kept == "mine\n"
    assert await work.tree.drift("before") == ([], "")


async def test_a_lock_that_was_left_behind_is_in_nobodys_way(work):
    await work.begin(REPOSITORY)
    await work.end("echo b > a; git commit -qam mine; touch .git/index.lock")
    await work.tree.revert()
    assert work.read("a") == "a\n"
    assert work.run("rm .git/index.lock; git status --short; git log --format=%s") == "0\n"


async def test_a_branch_that_is_held_is_said_before_anything_is_changed(work):
    await work.begin(REPOSITORY)
    await work.end("echo b > a; git commit -qam mine; touch .git/refs/heads/main.lock")
    with pytest.raises(Conflict, match=r"lock.*main\.lock"):
        await work.tree.revert()
    assert work.read("a") == "b\n"
    assert work.run("git log -1 --format=%s") == "mine\n"


async def test_what_was_removed_is_said(work):
    await work.begin("echo a > a")
    work.run("rm -rf ~/.paddock")
    with pytest.raises(Conflict, match="is not kept in the sandbox any more"):
        await work.tree.keep("after")
    with pytest.raises(Conflict, match="is not kept in the sandbox any more"):
        await work.tree.revert()


@pytest.mark.proves("T9")
async def test_nothing_that_an_agent_configured_is_run(work):
    await work.begin(REPOSITORY + "echo '* filter=evil diff=evil' > .gitattributes")
    evil = "sh -c 'touch ~/ran; cat'"
    trap = (
        "for where in --global '-f .git/config' \"-f $(echo ~/.paddock/trees/*.git)/config\"; do "
        f"for what in filter.evil.clean filter.evil.smudge diff.evil.textconv core.fsmonitor "
        f'diff.external diff.evil.command; do git config $where $what "{evil}"; done; '
        "git config $where core.hooksPath ~/hooks; done; mkdir ~/hooks; "
        "for hook in reference-transaction post-index-change post-checkout; do "
        "printf '#!/bin/sh\\ntouch ~/ran\\n' > ~/hooks/$hook; chmod +x ~/hooks/$hook; done; "
    )
    changed = await work.end(f"echo b > a; {trap} rm -f ~/ran")
    await work.tree.diff()
    await work.tree.revert()
    assert changed == {"a": "changed"}
    assert work.read("a") == "a\n"
    assert not (work.home / "ran").exists()


async def test_what_is_ignored_and_yet_tracked_is_looked_at(work):
    await work.begin(
        "echo '*.log' > .gitignore; echo 1 > kept.log; git init -q . && git add -f . "
        "&& git commit -qm 0; echo x > other.log"
    )
    changed = await work.end("echo 2 > kept.log; echo y > other.log")
    assert changed == {"kept.log": "changed"}


async def test_a_workspace_within_a_repository_is_all_of_it(work):
    await work.begin(REPOSITORY.replace(".", "..", 1).replace("echo a > a", "cd .. && echo a > a"))
    changed = await work.end("echo b > ../a; echo n > n; rm -rf ../.git")
    assert changed == {"a": "changed", "work/n": "added"}


@pytest.mark.proves("T9")
async def test_any_mark_can_be_gone_back_to(work):
    await work.begin("")
    work.run("echo one > a")
    await work.tree.keep("review-2")
    work.run("echo tried > scratch; echo more >> a")
    assert await work.tree.drift("review-2") == (["a", "scratch"], "")
    await work.tree.revert("review-2")
    assert (work.read("a"), work.read("scratch")) == ("one\n", "")
    assert await work.end("echo two > b") == {"a": "added", "b": "added"}


async def test_a_branch_that_was_not_checked_out_is_not_moved(work):
    await work.begin(REPOSITORY + "echo b > a; git commit -qam 1; git checkout -q --detach HEAD~")
    work.run("git checkout -q main; echo c > a")
    await work.end("git commit -qam 2")
    await work.tree.revert()
    assert work.run("git log --format=%s; git log --format=%s main") == "0\n2\n1\n0\n"
    assert work.run("git rev-parse --abbrev-ref HEAD; git status --short") == "HEAD\n"
    assert work.read("a") == "a\n"


async def test_a_branch_that_was_made_another_name_of_one_moves_alone(work):
    await work.begin(REPOSITORY)
    await work.end(
        "git checkout -qb other; echo b > a; git commit -qam other; "
        "git symbolic-ref refs/heads/main refs/heads/other"
    )
    await work.tree.revert()
    assert work.run("git branch --show-current; git log --format=%s") == "main\n0\n"
    assert work.run("git log --format=%s other") == "other\n0\n"


SECRETS = "echo .env > .gitignore; echo s > .env; mkdir 'c [1]'; echo '*' > 'c [1]/.gitignore'; "


@pytest.mark.proves("T9")
@pytest.mark.parametrize(
    "made", ["true", REPOSITORY + "echo local > .git/info/exclude"], ids=["plain", "repository"]
)
@pytest.mark.parametrize(
    "does",
    [
        "rm .gitignore",
        "echo other > .gitignore",
        "echo '!.env' >> .gitignore; git init -q .; git add -A; git commit -qm x",
        "rm -f .git/info/exclude .gitignore 'c [1]/.gitignore'",
        "rm -rf .git .gitignore; mkdir .gitignore; echo x > .gitignore/x",
    ],
    ids=["removes-it", "writes-it-anew", "commits", "removes-all", "makes-it-a-directory"],
)
async def test_what_was_ignored_stays_whatever_becomes_of_the_rules(work, made, does):
    await work.begin(f"{SECRETS} echo k > 'c [1]/k'; {made}; [ ! -d .git ] || echo l > local")
    was_local = work.read("local")
    await work.end(f"echo n > new; {does}")
    await work.tree.revert()
    assert (work.read(".env"), work.read("c [1]/k"), work.read("local")) == (
        "s\n",
        "k\n",
        was_local,
    )
    assert (work.read("new"), work.read(".gitignore")) == ("", ".env\n")


async def test_what_was_ignored_in_a_repository_within_stays(work):
    await work.begin("mkdir in; cd in; git init -q .; echo .env > .gitignore; echo s > .env")
    await work.end("rm in/.gitignore; echo n > in/new")
    await work.tree.revert()
    assert (work.read("in/.env"), work.read("in/new")) == ("s\n", "")


@pytest.mark.proves("T9")
async def test_what_the_agent_ignored_and_nothing_kept_is_not_removed(work):
    await work.begin("echo a > a")
    await work.end("echo out > .gitignore; echo made > out; echo n > new")
    await work.tree.revert()
    assert (work.read("out"), work.read("new"), work.read(".gitignore")) == ("made\n", "", "")


@pytest.mark.proves("T9")
@pytest.mark.parametrize(
    "commits", ["git commit -qam mine", "git reset -q", "git rm -qf --cached a"]
)
async def test_what_was_staged_is_staged_again(work, commits):
    await work.begin(
        REPOSITORY + "echo staged > a; echo s > s; git add a s; echo later > a; echo u > u"
    )
    stood = work.run("git status --short; git diff --cached; git diff")
    await work.end(f"echo x > s; {commits}; echo b > u")
    await work.tree.revert()
    assert work.run("git status --short; git diff --cached; git diff") == stood


async def test_what_was_staged_before_the_first_commit_is_staged_again(work):
    await work.begin("git init -q -b main . && echo a > a && git add a")
    await work.end("git commit -qm mine")
    await work.tree.revert()
    assert work.run("git status --short; git branch --show-current") == "A  a\nmain\n"


async def test_a_stage_that_is_gone_is_what_was_committed(work):
    await work.begin(REPOSITORY + "echo staged > a; git add a")
    await work.end(
        "git reset -q --hard; git reflog expire --expire=now --all; git prune --expire=now"
    )
    await work.tree.revert()
    assert work.run("git status --short; git log --format=%s") == " M a\n0\n"
    assert work.read("a") == "staged\n"


def _as_once(when, parent):
    """Checkpoints were once made like this, in the user's repository."""
    return (
        "export GIT_INDEX_FILE=.git/once; git add -A; unset GIT_INDEX_FILE; "
        "tree=$(GIT_INDEX_FILE=.git/once git write-tree); "
        f"made=$(printf 'paddock: {when} tsk_1\\n' | git commit-tree -p {parent} $tree); "
        f"git update-ref refs/paddock/tsk_1/{when} $made; "
        f"git symbolic-ref -q HEAD > .git/paddock-branch.tsk_1.{when}; printf %s $made"
    )


async def test_checkpoints_in_the_users_repository_are_still_found(work):
    work.before = work.run(f"{REPOSITORY} echo loose > loose; {_as_once('before', 'HEAD')}")
    work.after = work.run(
        "git checkout -qb mine; echo b > a; echo n > n; git add a; git commit -qm mine; "
        + _as_once("after", work.before)
    )
    assert {each.path for each in await work.tree.changes()} == {"a", "n"}
    assert b"-a\n+b\n" in (await work.tree.diff())[0]
    await work.tree.revert()
    assert work.run("git branch --show-current; git log --format=%s") == "main\n0\n"
    assert work.run("git status --short; cat a loose") == "?? loose\na\nloose\n"
    assert work.run("git log -1 --format=%s mine") == "mine\n"


ATTRIBUTES = (
    "* working-tree-encoding=UTF-16LE",
    "* text=auto",
    "* text eol=lf",
    "* text eol=crlf",
    "* crlf=input",
    "* ident",
    "* filter=lfs -diff",
    "[attr]odd text eol=crlf working-tree-encoding=UTF-16LE ident\n* odd",
)
BYTES = {"a": b"x\r\ny\r\n", "mixed": b"x\r\ny\n", "id": b'v = "$Id: 12345 $"\n', "b": b"\0\1\r\n"}


@pytest.mark.proves("T9")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("rules", ATTRIBUTES)
async def test_files_are_kept_byte_by_byte_whatever_attributes_say(work, rules, when):
    for name, data in BYTES.items():
        (work.directory / name).write_bytes(data)
    (work.directory / "nested").mkdir()
    attributes = f"printf '%s\n' '{rules}' | tee .gitattributes > nested/.gitattributes;"
    await work.begin(REPOSITORY.replace("echo a > a &&", "") + (attributes * (when == "before")))
    (work.directory / "a").write_bytes(b"x\ny\n")
    (work.directory / "id").write_bytes(b'v = "$Id: other $"\n')
    changed = await work.end(f"rm mixed b; echo evil > nested/evil; {attributes}")
    made = {"nested/.gitattributes": "added", ".gitattributes": "added"}
    assert changed == {
        **(made if when == "meanwhile" else {}),
        "a": "changed",
        "id": "changed",
        "mixed": "removed",
        "b": "removed",
        "nested/evil": "added",
    }
    text, _ = await work.tree.diff()
    assert b"+evil" in text
    assert (await work.tree.drift("before"))[0] == sorted(changed)
    await work.tree.revert()
    assert {name: (work.directory / name).read_bytes() for name in BYTES} == BYTES
    assert not (work.directory / "nested" / "evil").exists()


@pytest.mark.parametrize("name", ['q"q', "back\\slash", "new\nline", "tab\there", " a "])
async def test_a_repository_within_is_seen_whatever_its_name_is(work, name):
    inside = work.directory / name
    inside.mkdir()
    make = 'cd "$(dirname "$(ls -d */. | head -n 1)")"' if "\n" not in name else "cd new*"
    await work.begin(f"{REPOSITORY} {make}; {REPOSITORY} mkdir deep; cd deep; {REPOSITORY}")
    (inside / "a").write_text("changed\n")
    (inside / "deep" / "new").write_text("new\n")
    changed = await work.end("true")
    assert changed == {f"{name}/a": "changed", f"{name}/deep/new": "added"}
    await work.tree.revert()
    assert (inside / "a").read_text() == "a\n"
    assert not (inside / "deep" / "new").exists()


NOBODY = 65534


class Nobody(Here):
    """As a user who may not read everything."""

    async def exec(self, argv, **more):
        who = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        return await super().exec((*who, *argv), **more)


@pytest.mark.usefixtures("as_root")
async def test_what_cannot_be_read_is_left_out_and_said_and_hides_nothing_else():
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        home, work = place / "home", place / "home" / "work"
        work.mkdir(parents=True)
        (work / "a").write_text("1\n")
        (work / "known").write_text("was there before")
        (work / "known").chmod(0)
        for each in (home, work, work / "a"):
            os.chown(each, NOBODY, NOBODY)
        tree = Tree(Nobody(home), str(work), "tsk_1")
        tree = replace(tree, before=await tree.keep("before"))
        assert await tree.drift("before") == ([], "")
        assert await tree.now()
        (work / "a").write_text("2\n")
        (work / "secret").write_text("nobody's")
        (work / "secret").chmod(0)
        commit, unread = await tree.keep_after()
        assert 'open("secret"): Permission denied' in unread
        assert "known" not in unread
        changes = await replace(tree, after=commit).changes()
        assert [each.path for each in changes] == ["a"]
        files, left = await tree.drift("before")
        assert (files, left) == (["a"], unread)
        assert await tree.now() == ""
        await tree.revert()
        assert (work / "a").read_text() == "1\n"
    finally:
        shutil.rmtree(place)
