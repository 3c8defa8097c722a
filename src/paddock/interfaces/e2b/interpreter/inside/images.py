"""Shows an image of Pillow's when a cell saves it to a file, as E2B does.

Python kernels read this: it imports Pillow only when a cell does, which keeps their start short.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

_MODULE = "PIL.Image"


class Finder:
    """Patches `PIL.Image` when it is first imported."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_patch(module: Any) -> None:
            run(module)
            show_when_saved(module.Image)

        spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


def show_when_saved(image_type: Any) -> None:
    save = image_type.save

    @functools.wraps(save)
    def save_and_show(image: Any, fp: Any, *words: Any, **options: Any) -> None:
        save(image, fp, *words, **options)
        if isinstance(fp, str):
            _show(image)

    image_type.save = save_and_show


def _show(image: Any) -> None:
    from IPython.display import display

    try:
        png = image._repr_png_()
    except ValueError:  # PNG has no such mode, CMYK for example
        return
    if png is not None:
        display({"image/png": png, "text/plain": repr(image)}, raw=True)
