"""Measure, print rows, write build/bench.json: python -m bench [WORD...]

Words choose rows by their names. Exit code 0 also when a target is missed.
"""

import asyncio
import sys
from pathlib import Path

from bench import egress, local, packed, pages, preview, rows, server, tasks
from bench.measurements import UnknownRow, run, select

RESULTS = Path(__file__).parents[1] / "build" / "bench.json"
STAGES = (
    *local.STAGES,
    *packed.STAGES,
    *server.STAGES,
    *pages.STAGES,
    *preview.STAGES,
    *egress.STAGES,
    *tasks.STAGES,
)


def main() -> int:
    try:
        chosen = select(STAGES, sys.argv[1:])
    except UnknownRow as error:
        sys.stderr.write(f"{error}\n")
        return 2
    measured: list[rows.Row] = []

    def report(row: rows.Row) -> None:
        measured.append(row)
        print(row.line, flush=True)
        rows.write(measured, RESULTS)

    def tell(text: str) -> None:
        print(f"… {text}", file=sys.stderr, flush=True)

    print(rows.HEAD, flush=True)
    asyncio.run(run(chosen, tell, report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
