#!/bin/sh
# Runs a command as root where that is possible: directly, through sudo, or else as who you are.
#
# Local sandboxes need root. What runs under sudo leaves nothing of root's in the checkout: bytecode
# goes below build/, and that is given back to you afterwards. PADDOCK_SUDO=no never asks for sudo.
set -eu

if [ "$(id -u)" = 0 ] || [ "${PADDOCK_SUDO:-yes}" = no ]; then
    exec "$@"
fi
if ! command -v sudo >/dev/null 2>&1 || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    echo "running without root: sandboxes of the local provider are not available" >&2
    exec "$@"
fi

mkdir -p build
code=0
sudo -E -H env "PATH=$PATH" "PYTHONPYCACHEPREFIX=$(pwd)/build/pycache" "$@" || code=$?
for made in build .pytest_cache .hypothesis; do
    [ ! -e "$made" ] || sudo chown -R "$(id -u):$(id -g)" "$made"
done
exit "$code"
