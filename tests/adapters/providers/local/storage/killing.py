"""Processes that are killed in the midst of their work, at a step that the test chooses."""

import os
import signal
import sys
import traceback
from collections.abc import Callable

EVENTS = ("fcntl.ioctl", "os.", "subprocess.Popen", "shutil.")


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Run the work in a child that is killed just before its nth step; whether it got so far."""
    child = os.fork()
    if child == 0:
        try:
            die_before(step)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - reported, and the child ends here
            traceback.print_exc()
        finally:
            os._exit(1)  # never back into the test runner
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


def die_before(step: int) -> None:
    count = 0

    def watch(event: str, _: tuple[object, ...]) -> None:
        nonlocal count
        if event.startswith(EVENTS):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
