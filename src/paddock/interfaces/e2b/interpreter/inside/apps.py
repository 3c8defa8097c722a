"""A kernel as a process."""

from __future__ import annotations

import sys

import zmq

from . import UNLIMITED

# Jupyter loads these for debuggers and completion, which nothing here asks for. Without them a
# kernel starts a quarter sooner and takes a quarter less memory. Cells can still import them.
_UNUSED = ("debugpy", "jedi")
sys.modules.update(dict.fromkeys(_UNUSED))  # type: ignore[arg-type]
from ipykernel.kernelapp import IPKernelApp  # noqa: E402

for _name in _UNUSED:
    del sys.modules[_name]


class KernelApp(IPKernelApp):
    """Jupyter's own, which drops nothing of what is said faster than it is heard: with it would go
    the word that a cell has ended, and whoever follows that one would wait for ever."""

    def init_iopub(self, context: zmq.Context) -> None:
        context.setsockopt(zmq.SNDHWM, UNLIMITED)
        super().init_iopub(context)


def launch(language: str) -> None:
    if language == "python":
        # What is imported there is not to be found among this file's modules.
        del sys.path[0]
        KernelApp.launch_instance()
        return
    from .piped import KERNELS

    KernelApp.launch_instance(kernel_class=KERNELS[language])
