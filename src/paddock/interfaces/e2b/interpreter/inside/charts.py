"""What is drawn in a matplotlib figure, as numbers and words.

This is read by kernels, each in its own process: nothing but matplotlib is imported, and only when
there is a figure.
"""

from __future__ import annotations

import math
import re
from typing import Any

_UNIT = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")
_BOX_CORNERS = 5


def chart_of(figure: Any) -> dict[str, Any] | None:
    """One chart, or one of several where the figure has several axes; None where nothing is."""
    found = [each for axes in figure.axes if (each := _of_axes(axes)) is not None]
    if len(found) <= 1:
        return found[0] if found else None
    suptitle = getattr(figure, "_suptitle", None)
    title = suptitle.get_text() if suptitle is not None else ""
    return {"type": "superchart", "title": title, "elements": found}


def _of_axes(axes: Any) -> dict[str, Any] | None:
    """By what is drawn: the first kind that there is any of."""
    for kind, elements_of, has_scales in (
        ("pie", _slices, False),
        ("box_and_whisker", _boxes, False),
        ("bar", _bars, False),
        ("line", _lines, True),
        ("scatter", _points, True),
    ):
        if elements := elements_of(axes):
            scales = _scales(axes) if has_scales else {}
            return {"type": kind, **_plane(axes), **scales, "elements": elements}
    if not axes.has_data():
        return None
    return {"type": "unknown", "title": axes.get_title(), "elements": []}


def _plane(axes: Any) -> dict[str, Any]:
    return {
        "title": axes.get_title(),
        "x_label": axes.get_xlabel(),
        "y_label": axes.get_ylabel(),
        "x_unit": _unit(axes.get_xlabel()),
        "y_unit": _unit(axes.get_ylabel()),
    }


def _unit(label: str) -> str | None:
    found = _UNIT.search(label or "")
    return found[1] if found else None


def _scales(axes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = axis.get_ticklocs()
        found[f"{name}_ticks"] = [_value(axis, tick) for tick in ticks]
        found[f"{name}_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
        found[f"{name}_scale"] = _scale(axis)
    return found


def _scale(axis: Any) -> str:
    kind = type(_converter(axis)).__name__
    if "Date" in kind:
        return "datetime"
    return "categorical" if "Category" in kind else str(axis.get_scale())


def _converter(axis: Any) -> Any:
    get = getattr(axis, "get_converter", None)  # newer versions
    return get() if get is not None else getattr(axis, "converter", None)


def _value(axis: Any, value: Any) -> Any:
    """As it was given: a date, a category, or a number."""
    scale = _scale(axis)
    if scale == "datetime" and not hasattr(value, "isoformat"):
        from matplotlib.dates import num2date

        try:
            return num2date(value).isoformat()
        except (ValueError, OverflowError, TypeError):
            pass
    if scale == "categorical" and not isinstance(value, str):
        names = {number: name for name, number in axis.units._mapping.items()}
        return names.get(round(float(value)), _plain(value))
    return _plain(value)


def _plain(value: Any) -> Any:
    """What JSON can say."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _pairs(axes: Any, xs: Any, ys: Any) -> list[list[Any]]:
    pairs = zip(xs, ys)  # noqa: B905 - a kernel's Python may be older than the argument
    return [[_value(axes.xaxis, x), _value(axes.yaxis, y)] for x, y in pairs]


def _lines(axes: Any) -> list[dict[str, Any]]:
    return [
        {
            "label": str(line.get_label()),
            "points": _pairs(axes, line.get_xdata(), line.get_ydata()),
        }
        for line in axes.lines
        if len(line.get_xdata())
    ]


def _points(axes: Any) -> list[dict[str, Any]]:
    found = []
    for collection in axes.collections:
        places = list(collection.get_offsets())
        if places:
            points = _pairs(axes, [x for x, _ in places], [y for _, y in places])
            found.append({"label": str(collection.get_label()), "points": points})
    return found


def _slices(axes: Any) -> list[dict[str, Any]]:
    return [
        {
            "label": str(each.get_label()),
            "angle": _plain(abs(each.theta2 - each.theta1)),
            "radius": _plain(each.r),
        }
        for each in axes.patches
        if hasattr(each, "theta1")
    ]


def _bars(axes: Any) -> list[dict[str, Any]]:
    found = []
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        lying = getattr(container, "orientation", "vertical") == "horizontal"
        axis = axes.yaxis if lying else axes.xaxis
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2
            if not lying:
                middle = bar.get_x() + bar.get_width() / 2
            found.append(
                {
                    "label": _name_at(axis, middle),
                    "value": _plain(bar.get_width() if lying else bar.get_height()),
                    "group": str(container.get_label()),
                }
            )
    return found


def _name_at(axis: Any, place: float) -> str:
    """What the axis calls it there: the nearest tick's words, or the number."""
    named = [
        (abs(tick - place), label.get_text())
        for tick, label in zip(axis.get_ticklocs(), axis.get_ticklabels())  # noqa: B905
    ]
    near = min(named, default=None)
    if near is not None and near[1] and near[0] < 0.5:
        return str(near[1])
    return str(_value(axis, place))


def _boxes(axes: Any) -> list[dict[str, Any]]:
    """A box, and the lines that are drawn after it and before the next one."""
    lines = list(axes.lines)
    starts = [number for number, line in enumerate(lines) if _is_box(line)]
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)]):  # noqa: B905
        box, rest = lines[start], lines[start + 1 : end]
        lower, upper = min(box.get_ydata()), max(box.get_ydata())
        strokes = [each for each in rest if each.get_linestyle() != "None"]
        heights = [y for each in strokes for y in each.get_ydata()] or [lower, upper]
        width = (min(box.get_xdata()), max(box.get_xdata()))
        median = next((y for each in strokes for y in _across(each, width)), None)
        outside = [y for each in rest if each.get_linestyle() == "None" for y in each.get_ydata()]
        middle = sum(width) / 2
        found.append(
            {
                "label": _name_at(axes.xaxis, middle),
                "min": _plain(min(heights)),
                "first_quartile": _plain(lower),
                "median": _plain(median),
                "third_quartile": _plain(upper),
                "max": _plain(max(heights)),
                "outliers": [_plain(y) for y in outside],
            }
        )
    return found


def _is_box(line: Any) -> bool:
    xs, ys = list(line.get_xdata()), list(line.get_ydata())
    if len(xs) != _BOX_CORNERS or xs[0] != xs[-1] or ys[0] != ys[-1]:
        return False
    return len(set(xs)) == 2 and len(set(ys)) <= 2 and xs[1] == xs[2] and ys[0] == ys[1]


def _across(line: Any, width: tuple[Any, Any]) -> list[Any]:
    """Where a line lies across the whole box, as that of the median does and whiskers' ends do
    not."""
    xs, ys = list(line.get_xdata()), list(line.get_ydata())
    spans = len(xs) == 2 and (min(xs), max(xs)) == width
    return ys[:1] if spans and ys[0] == ys[1] else []
