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
    return {"type": "superchart", "title": title or None, "elements": found}


def _of_axes(axes: Any) -> dict[str, Any] | None:
    """By what is drawn: the first kind that there is any of."""
    title = axes.get_title() or None
    if slices := _slices(axes):
        return {"type": "pie", "title": title, "elements": slices}
    for kind, elements_of in (("box_and_whisker", _boxes), ("bar", _bars)):
        elements, is_horizontal = elements_of(axes)
        if elements:
            plane = _plane(axes, is_horizontal=is_horizontal)
            return {"type": kind, "title": title, **plane, "elements": elements}
    for kind, points_of in (("line", _lines), ("scatter", _points)):
        if elements := points_of(axes):
            plane = {**_plane(axes), **_scales(axes)}
            return {"type": kind, "title": title, **plane, "elements": elements}
    if not axes.has_data():
        return None
    return {"type": "unknown", "title": title, "elements": []}


def _plane(axes: Any, *, is_horizontal: bool = False) -> dict[str, Any]:
    """Labels and units. In a lying chart `x` names the axis of its categories, as in E2B's."""
    x, y = axes.get_xlabel() or None, axes.get_ylabel() or None
    if is_horizontal:
        x, y = y, x
    return {"x_label": x, "y_label": y, "x_unit": _unit(x), "y_unit": _unit(y)}


def _unit(label: str | None) -> str | None:
    found = _UNIT.search(label or "")
    return found[1] if found else None


def _scales(axes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        value = _value if _scale(axis) == "datetime" else _number_of
        found[f"{name}_ticks"] = [value(axis, tick) for tick in axis.get_ticklocs()]
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
    """Convert to JSON. Every number is a float, so that no type depends on the data."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else None


def _number_of(_axis: Any, tick: Any) -> Any:
    return _plain(tick)


def _label(artist: Any, prefix: str, name: str) -> str:
    """A label that matplotlib made up, such as `_child0`, becomes `Line 0`."""
    label = str(artist.get_label())
    return f"{name} {label[len(prefix) :]}" if label.startswith(prefix) else label


def _pairs(axes: Any, xs: Any, ys: Any) -> list[list[Any]]:
    pairs = zip(xs, ys)  # noqa: B905 - a kernel's Python may be older than the argument
    return [[_value(axes.xaxis, x), _value(axes.yaxis, y)] for x, y in pairs]


def _lines(axes: Any) -> list[dict[str, Any]]:
    return [
        {
            "label": _label(line, "_child", "Line"),
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
            # matplotlib keeps angles in single precision.
            "angle": round(abs(float(each.theta2) - float(each.theta1)), 4),
            "radius": _plain(each.r),
        }
        for each in axes.patches
        if hasattr(each, "theta1")
    ]


def _bars(axes: Any) -> tuple[list[dict[str, Any]], bool]:
    """All bars, and whether they lie."""
    found, is_horizontal = [], False
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        is_horizontal = getattr(container, "orientation", "vertical") == "horizontal"
        axis = axes.yaxis if is_horizontal else axes.xaxis
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2
            if not is_horizontal:
                middle = bar.get_x() + bar.get_width() / 2
            found.append(
                {
                    "label": _name_at(axis, middle),
                    "value": _plain(bar.get_width() if is_horizontal else bar.get_height()),
                    "group": _label(container, "_container", "Group"),
                }
            )
    return found, is_horizontal


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


def _boxes(axes: Any) -> tuple[list[dict[str, Any]], bool]:
    """All boxes of a box plot, and whether they lie. The lines of a box are drawn after it and
    before the next one. Filled boxes are patches. Where there are any, the others are not told."""
    artists = [(artist, _corners(artist)) for artist in axes.get_children()]
    starts = [number for number, (_, corners) in enumerate(artists) if corners is not None]
    filled: list[tuple[dict[str, Any], bool]] = []
    open_ones: list[tuple[dict[str, Any], bool]] = []
    for start, end in zip(starts, [*starts[1:], len(artists)]):  # noqa: B905
        box, corners = artists[start]
        lines = [each for each, _ in artists[start + 1 : end] if hasattr(each, "get_xdata")]
        if (found := _box(axes, corners, lines)) is not None:
            (open_ones if hasattr(box, "get_xdata") else filled).append(found)
    boxes = filled or open_ones
    return [box for box, _ in boxes], any(is_horizontal for _, is_horizontal in boxes)


def _corners(artist: Any) -> tuple[list[Any], list[Any]] | None:
    """The places of what may be a box: a patch of any path, or a line that closes a rectangle."""
    if type(artist).__name__ == "PathPatch":
        vertices = artist.get_path().vertices
        return [x for x, _ in vertices], [y for _, y in vertices]
    if not hasattr(artist, "get_xdata"):
        return None
    xs, ys = list(artist.get_xdata()), list(artist.get_ydata())
    if len(xs) != _BOX_CORNERS or xs[0] != xs[-1] or ys[0] != ys[-1]:
        return None
    upright = xs[1] == xs[2] and ys[0] == ys[1]
    lying = ys[1] == ys[2] and xs[0] == xs[1]
    return (xs, ys) if len(set(xs)) <= 2 and len(set(ys)) <= 2 and (upright or lying) else None


def _box(axes: Any, corners: Any, lines: list[Any]) -> tuple[dict[str, Any], bool] | None:
    """The numbers of one box, and whether it lies; None where no median is drawn in it."""
    for across, along in ((0, 1), (1, 0)):
        width = (min(corners[across]), max(corners[across]))
        lower, upper = min(corners[along]), max(corners[along])
        strokes, outliers = [], []
        for line in lines:
            data = (list(line.get_xdata()), list(line.get_ydata()))
            if line.get_linestyle() == "None":
                outliers += data[along]
            else:
                strokes.append((data[across], data[along]))
        median = _median(strokes, width, (lower, upper))
        if median is None:
            continue
        heights = [height for _, stroke in strokes for height in stroke]
        axis = axes.yaxis if across else axes.xaxis
        box = {
            "label": _name_at(axis, sum(width) / 2),
            "min": _plain(min(heights)),
            "first_quartile": _plain(lower),
            "median": _plain(median),
            "third_quartile": _plain(upper),
            "max": _plain(max(heights)),
            "outliers": [_plain(each) for each in outliers],
        }
        return box, bool(across)
    return None


def _median(strokes: Any, width: tuple[Any, Any], heights: tuple[Any, Any]) -> Any:
    """The height of the longest level stroke within the box. The ends of whiskers are shorter."""
    level = [
        (max(across) - min(across), along[0])
        for across, along in strokes
        if len(along) == 2
        and along[0] == along[1]
        and width[0] <= min(across) < max(across) <= width[1]
        and heights[0] <= along[0] <= heights[1]
    ]
    return max(level, key=lambda stroke: stroke[0], default=(0, None))[1]
