"""The sandbox of a git worktree, by the directory alone."""

import fcntl
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from paddock.domain.errors import InvalidRequest
from paddock.interfaces.cli.remote.worktree.place import Worktree, find, is_worktree, path_of
from tests.interfaces.cli.remote.conftest import DEADLINE_S, PADDOCK

pytestmark = pytest.mark.timeout(400)
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def git(place, *words):
    done = subprocess.run(
        ["git", *AUTHOR, "-C", place, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with one commit, and what a person has lying about in it."""
    top = tmp_path / "main"
    (top / "src" / "deep").mkdir(parents=True)
    (top / "src" / "deep" / "a.txt").write_text("one\n")
    (top / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (top / "run.sh").chmod(0o755)
    (top / "gone").write_text("x")
    (top / "link").symlink_to("src/deep/a.txt")
    (top / ".gitignore").write_text("*.log\n.env\n")
    git(tmp_path, "init", "-q", "-b", "trunk", top)
    (top / "kept.log").write_text("known, although it is ignored\n")
    git(top, "add", "-A", "-f")
    git(top, "commit", "-qm", "one")
    (top / "gone").unlink()
    (top / "untracked ü\n").write_text("new\n")
    (top / ".env").write_text("SECRET=1")
    return top


class Tree:
    """A worktree and the program, used from a directory in it."""

    def __init__(self, cli, top, inside):
        self.cli, self.top, self.inside = cli, top, inside

    def __call__(self, *words, below="."):
        return subprocess.run(
            [*PADDOCK, *words],
            cwd=self.top / below,
            env=self.cli.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * DEADLINE_S,
        )

    def text(self, *words, below="."):
        done = self(*words, below=below)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(self, below="."):
        # The simulated sandboxes have no root of their own.
        words = ("worktree", "create", "--template", "plain", "--directory", self.inside)
        return self.text(*words, below=below).strip()


@pytest.fixture
def tree(cli, repository, tmp_path):
    made = Tree(cli, repository, str(tmp_path / "inside" / "project"))
    (tmp_path / "inside").mkdir()
    before = cli.names()
    yield made
    if left := cli.names() - before:
        cli.text("rm", "-f", *left)


@pytest.mark.proves("C8", "E11", "S9", "S1")
def test_the_directory_says_which_sandbox_is_meant_and_where_in_it(tree, tmp_path):
    name = tree.create(below="src/deep")
    assert name.startswith("main-")
    assert tree.create() == name
    (tmp_path / "way-in").symlink_to(tree.top)
    assert Tree(tree.cli, tmp_path / "way-in", tree.inside).create() == name
    shown = tree.text("here", "--", "sh", "-c", "pwd; cat a.txt; cd ../..; ls -A", below="src/deep")
    assert shown.splitlines()[:2] == [f"{tree.inside}/src/deep", "one"]
    inside = Path(tree.inside)
    carried = {each.name for each in inside.iterdir()}
    assert carried == {".git", ".gitignore", "kept.log", "link", "run.sh", "src", "untracked ü\n"}
    assert (inside / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (inside / "link").readlink() == Path("src/deep/a.txt")
    assert git(inside, "branch", "--show-current") == "trunk"
    (tree.top / "later").mkdir()
    away = tree("worktree", "exec", "pwd", below="later")
    assert (away.stdout, away.returncode) == (f"{tree.inside}\n", 0)
    assert away.stderr == f"note: later is not there inside; running in {tree.inside}\n"
    listed = tree.text("worktree", "ls").splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [[str(tree.top), name, "running"]]


@pytest.mark.proves("C8")
def test_one_that_sleeps_is_woken_and_what_was_made_in_it_is_told(tree):
    name = tree.create()
    assert tree.text("worktree", "stop", below="src") == f"{name} stopped\n"
    script = "echo two >> a.txt; rm ../../run.sh; echo x > ../../kept.log; echo y > n.log; exit 3"
    assert tree("here", "sh", "-c", script, below="src/deep").returncode == 3
    made = tree.text("worktree", "status", below="src").splitlines()
    assert [line.split() for line in made[1:]] == [
        ["changed", "kept.log"],
        ["removed", "run.sh"],
        ["changed", "src/deep/a.txt"],
    ]
    assert tree.cli.answer("ls")["sandboxes"][0]["state"] == "running"


@pytest.mark.proves("L2", "S8")
def test_processes_at_once_share_one_sandbox_and_carry_its_content_once(tree):
    words = ("worktree", "create", "--template", "plain", "--directory", tree.inside, tree.top)
    started = [tree.cli.start(*map(str, words)) for _ in range(4)]
    outcomes = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0] * 4, outcomes
    assert len({out for out, _ in outcomes}) == 1
    assert sum(b"carrying" in err for _, err in outcomes) == 1
    assert git(tree.inside, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.proves("S8")
def test_the_lock_is_held_while_the_sandbox_is_prepared_and_not_while_a_command_runs(tree):
    lock = os.open(tree.top / ".git" / "paddock.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = tree.cli.start(
            *("worktree", "create", "--template", "plain", "--directory", tree.inside),
            str(tree.top),
        )
        while not holds_open(waiting.pid, tree.top / ".git" / "paddock.lock"):
            assert waiting.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        fcntl.flock(lock, fcntl.LOCK_UN)
        waiting.communicate(timeout=60)
        assert waiting.returncode == 0
        running = tree.cli.start("here", "-C", str(tree.top), "sh", "-c", "touch ready; sleep 60")
        deadline = time.monotonic() + 60
        while not Path(tree.inside, "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert running.poll() is None
        running.terminate()
        running.communicate(timeout=60)
    finally:
        os.close(lock)


def holds_open(pid, path):
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(each) == str(path):
                return True
    return False


@pytest.mark.proves("S9")
def test_nested_worktrees_submodules_and_what_is_none_have_a_clear_answer(repository, tmp_path):
    nested = repository / "src" / "nested"
    git(repository, "worktree", "add", "-q", nested)
    assert find(nested / "src" / "deep") == Worktree(nested, Path("src/deep"))
    assert find(repository / "src").top == repository
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "./", "part")
    assert find(repository / "part" / "src") == Worktree(repository, Path("part/src"))
    git(tmp_path, "init", "-q", "--bare", "bare")
    (tmp_path / "plain").mkdir()
    for place in ("bare", "plain", "missing", "main/.git", "main/run.sh"):
        with pytest.raises(InvalidRequest) as refused:
            find(tmp_path / place)
        assert place in refused.value.message
        assert refused.value.remediation


def test_an_identity_leads_back_to_the_path_and_only_on_this_machine(tmp_path):
    strange = tmp_path / os.fsdecode(b"a b%\xff\xc3\xbc?#\n")
    strange.mkdir()
    git(tmp_path, "init", "-q", strange)
    identity = find(strange).identity
    assert identity.isascii()
    assert (path_of(identity), is_worktree(strange)) == (strange, True)
    host = identity.split("/")[2]
    assert path_of(identity.replace(host, "0" * 12)) is None
    assert path_of("issue-9") is None
    assert not is_worktree(strange / ".git")


def test_a_hook_of_git_means_the_directory_and_not_the_repository_it_runs_for(
    repository, tmp_path, monkeypatch
):
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert find(repository / "src").top == repository


@pytest.mark.proves("L13", "L6")
def test_a_worktree_is_removed_with_its_sandbox_once_the_work_is_committed(tree, tmp_path):
    git(tree.top, "worktree", "add", "-q", tmp_path / "fix")
    fix = Tree(tree.cli, tmp_path / "fix", tree.inside)
    name = fix.create()
    fix.text("here", "--", "sh", "-c", "echo two >> src/deep/a.txt; rm run.sh; echo n > new")
    refused = tree("worktree", "rm", "../fix")
    assert refused.returncode == 1
    assert f"sandbox {name} holds work that is not committed in {fix.top}: new" in refused.stderr
    assert (fix.top.is_dir(), name in tree.cli.names()) == (True, True)
    tree.cli.text("cp", f"{name}:{tree.inside}/src/deep/a.txt", str(fix.top / "src/deep/a.txt"))
    tree.cli.text("cp", f"{name}:{tree.inside}/new", str(fix.top / "new"))
    git(fix.top, "rm", "-q", "run.sh")
    git(fix.top, "add", "-A")
    git(fix.top, "commit", "-qm", "brought back")
    (fix.top / "dirt").write_text("x")
    dirty = tree("worktree", "rm", "../fix")
    assert (dirty.returncode, "contains modified or untracked files" in dirty.stderr) == (1, True)
    assert (fix.top.is_dir(), name in tree.cli.names()) == (True, True)
    (fix.top / "dirt").unlink()
    done = tree.text("worktree", "rm", "../fix/")
    assert done == f"{fix.top} and {name} removed\n"
    assert (fix.top.exists(), name in tree.cli.names()) == (False, False)
    assert str(fix.top) not in git(tree.top, "worktree", "list")


@pytest.mark.proves("L13")
def test_force_and_keep_mean_what_they_say_wherever_they_stand(tree, tmp_path):
    git(tree.top, "worktree", "add", "-q", tmp_path / "fix")
    fix = Tree(tree.cli, tmp_path / "fix", tree.inside)
    name = fix.create()
    fix.text("here", "--", "touch", "made")
    (fix.top / "dirt").write_text("x")
    below = tree("worktree", "rm", "../fix/src")
    assert (below.returncode, str(fix.top) in below.stderr) == (2, True)
    assert tree.text("worktree", "rm", "--force", "../fix") == f"{fix.top} and {name} removed\n"
    assert not fix.top.exists()
    main = tree("worktree", "rm", "--force")
    assert (main.returncode, "main worktree" in main.stderr) == (2, True)
    Path(tree.inside).rename(tmp_path / "old")
    name = tree.create()
    assert tree.text("worktree", "rm", ".", "--keep") == f"{name} removed\n"
    assert tree.top.is_dir()


@pytest.mark.proves("L13", "L6")
def test_what_plain_git_removed_is_found_and_removed_unless_it_holds_work(tree, tmp_path):
    names = {}
    for each in ("clean", "busy"):
        git(tree.top, "worktree", "add", "-q", tmp_path / each)
        place = Tree(tree.cli, tmp_path / each, f"{tree.inside}-{each}")
        names[each] = place.create()
    place.text("here", "--", "touch", "made")
    for each in names:
        tree.cli.text("stop", names[each])
        git(tree.top, "worktree", "remove", tmp_path / each)
    listed = tree.text("worktree", "prune", "--dry-run")
    assert set(listed.splitlines()) == {
        f"{name}: {tmp_path / each} is gone" for each, name in names.items()
    }
    pruned = tree("worktree", "prune")
    assert pruned.stdout == f"{names['clean']} removed: {tmp_path / 'clean'} is gone\n"
    assert pruned.returncode == 1
    assert "1 changed file: made" in pruned.stderr
    left = {each["name"]: each["state"] for each in tree.cli.answer("ls")["sandboxes"]}
    assert left == {names["busy"]: "stopped"}
