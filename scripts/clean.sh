#!/bin/sh
# Removes what was built; .venv stays. Never deletes through a mount.
set -eu

cd "$(dirname "$0")/.."
built='build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache'

# The kernel writes a space as \040 and a backslash as \134.
here=$(pwd -P | sed 's/\\/\\134/g; s/ /\\040/g')
mounts=$(for directory in $built; do
    place=$here/$directory awk '
        $5 == ENVIRON["place"] || index($5, ENVIRON["place"] "/") == 1 { print "  umount " $5 }
    ' /proc/self/mountinfo
done)
if [ -n "$mounts" ]; then
    # Not unmounted here: a running test may use it.
    printf 'Nothing was removed, because something is mounted there. If no tests are running, run:\n%s\n' "$mounts" >&2
    exit 1
fi

# shellcheck disable=SC2086  # a list of words
rm -rf --one-file-system $built
find src tests scripts bench -xdev -name __pycache__ -prune -exec rm -rf --one-file-system {} +
