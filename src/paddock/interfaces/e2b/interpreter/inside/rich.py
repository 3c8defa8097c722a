"""What a Python kernel is told first: figures and frames also come as what is in them, and images
are shown when they are saved."""

from __future__ import annotations

from pathlib import PurePosixPath
from zipfile import ZipFile

CHART = "application/vnd.paddock.chart+json"
DATA = "application/vnd.paddock.data+json"
MOST_CELLS = 1_000_000
"""Of a frame that is larger, only the table is shown."""

_INSTALL = """
def _chart(figure, include=None, exclude=None):
    try:
        found = chart_of(figure)
    except Exception:  # a picture is shown whatever is in it
        found = None
    return {CHART: found} if found else {}

def _data(frame, include=None, exclude=None):
    try:
        if frame.size > MOST_CELLS:
            return {}
        import json
        plain = json.loads(frame.to_json(orient="split", date_format="iso", default_handler=str))
        columns = list(map(str, frame.columns))
        rows = plain["data"]
        return {DATA: {name: [row[n] for row in rows] for n, name in enumerate(columns)}}
    except Exception:
        return {}

_formatter = get_ipython().display_formatter.mimebundle_formatter
_formatter.for_type_by_name("matplotlib.figure", "Figure", _chart)
_formatter.for_type_by_name("pandas.core.frame", "DataFrame", _data)
_formatter.for_type_by_name("pandas", "DataFrame", _data)
sys.meta_path.insert(0, Finder())
"""


def introduction(archive: str) -> str:
    """A cell that does so and leaves no name behind."""
    with ZipFile(archive) as packed:
        sources = [
            packed.read(str(PurePosixPath("inside", name))).decode()
            for name in ("charts.py", "images.py")
        ]
    constants = f"CHART, DATA, MOST_CELLS = {CHART!r}, {DATA!r}, {MOST_CELLS}\n"
    sources.append(constants + _INSTALL)
    return (
        "(lambda names: [exec(compile(source, 'rich', 'exec'), names) "
        f"for source in {sources!r}])({{'get_ipython': get_ipython, '__name__': 'rich'}})"
    )
