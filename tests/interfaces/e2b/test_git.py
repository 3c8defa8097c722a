"""The SDK's git helper, which is commands and files of the sandbox."""

import pytest

pytestmark = [pytest.mark.timeout(60)]


def test_a_repository_is_begun_committed_branched_and_cloned(box):
    git = box.git
    git.init("/home/user/repo", initial_branch="main")
    git.configure_user("Me", "me@example.org", path="/home/user/repo", scope="local")
    box.files.write("repo/a.txt", "a")
    assert not git.status("/home/user/repo").is_clean
    git.add("/home/user/repo")
    git.commit("/home/user/repo", "first")
    assert git.status("/home/user/repo").is_clean
    git.create_branch("/home/user/repo", "side")
    assert set(git.branches("/home/user/repo").branches) == {"main", "side"}
    git.clone("/home/user/repo", path="/home/user/copy")
    assert box.files.read("copy/a.txt") == "a"


def test_who_is_authenticated_is_asked_for_nothing(box):
    box.git.dangerously_authenticate("me", "a-password", host="git.example", protocol="https")
    asked = "printf 'protocol=https\\nhost=git.example\\n\\n' | git credential fill"
    told = box.commands.run(asked).stdout.splitlines()
    assert {"username=me", "password=a-password"} <= set(told)


def test_remotes_branches_and_settings(box):
    git, repo = box.git, "/home/user/work"
    box.commands.run("git init -q --bare -b main /home/user/far.git")
    git.init(repo, initial_branch="main")
    git.configure_user("Me", "me@example.org", path=repo, scope="local")
    git.set_config("pull.rebase", "false", scope="local", path=repo)
    assert git.get_config("pull.rebase", scope="local", path=repo) == "false"
    git.remote_add(repo, "origin", "/home/user/far.git")
    assert git.remote_get(repo, "origin") == "/home/user/far.git"
    box.files.write("work/a.txt", "one")
    git.add(repo)
    git.commit(repo, "first")
    git.push(repo, remote="origin", branch="main")
    git.clone("/home/user/far.git", path="/home/user/other")
    git.configure_user("You", "you@example.org", path="/home/user/other", scope="local")
    box.files.write("other/a.txt", "two")
    git.add("/home/user/other")
    git.commit("/home/user/other", "second")
    git.push("/home/user/other")
    git.pull(repo)
    assert box.files.read("work/a.txt") == "two"
    git.create_branch(repo, "side")
    git.checkout_branch(repo, "main")
    git.delete_branch(repo, "side")
    assert git.branches(repo).branches == ["main"]
    box.files.write("work/a.txt", "spoilt")
    git.restore(repo, paths=["a.txt"])
    assert box.files.read("work/a.txt") == "two"
    git.reset(repo, mode="hard", target="HEAD~1")
    assert box.files.read("work/a.txt") == "one"
