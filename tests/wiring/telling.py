"""A program that tells of events until it has told of so many, also when it is begun anew.

Each is recorded with its own number, so that what arrives can be compared with what was meant.
"""

import sys
import time

from paddock import Server, Spool


def main(path: str, sandbox: str, url: str, token: str, count: int) -> None:
    with Spool.open(path, sandbox, name="teller", server=Server(url, token)) as spool:
        seq = 0
        while seq < count:
            seq = spool.record("custom.step", {"said": "x" * 50})
            print(seq, flush=True)
        while spool.waiting():
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]))
