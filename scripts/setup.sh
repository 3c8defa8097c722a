#!/bin/sh
# Makes this machine ready for `make` targets: setup.sh [python | run | test | soak]
#
#   python   uv and the Python packages of uv.lock, in .venv
#   run      the same, and the system packages that local sandboxes need
#   test     the same, and what the tests need on top: the Docker engine, PostgreSQL and nginx,
#            which are installed but not started, and gVisor's runsc in the user's cache
#   soak     the same, and Podman
#
# Every need is looked at first, by command or by file. What is missing is listed before it is
# installed. When nothing is missing this takes a few milliseconds and says nothing.
set -eu

cd "$(dirname "$0")/.."
mode=${1:-run}
root=$(pwd)
stamp=.venv/.paddock-setup
tools=.venv-tools
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
ca_bundle=/etc/ssl/certs/ca-certificates.crt

# kind, what to look for, the Debian package that has it (a|b: the first that the suite knows)
run_needs='
command crun           crun
command runc           runc
command mkfs.btrfs     btrfs-progs
command mmdebstrap     mmdebstrap
command gpg            gpg
command git            git
command catatonit      catatonit
command ip             iproute2
command nft            nftables
command skopeo         skopeo
command umoci          umoci
command bwrap          bubblewrap
command zstd           zstd
command newuidmap      uidmap
command nsenter        util-linux
command losetup        mount
library libseccomp.so.2 libseccomp2
file /etc/ssl/certs/ca-certificates.crt ca-certificates
file /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
'
test_needs='
command dockerd        docker.io
command docker         docker-cli|docker.io
command containerd     containerd
command mkfs.xfs       xfsprogs
command curl           curl
command gnutls-serv    gnutls-bin
command ssh            openssh-client
command rsync          rsync
command nginx          nginx
command wrk            wrk
command chromium       chromium
command node           nodejs
command npm            npm
command strace         strace
file /bin/busybox busybox-static
any /usr/lib/postgresql/*/bin/postgres postgresql
'
soak_needs='
command podman         podman
file /usr/lib/podman/netavark netavark
'
test_cache=${PADDOCK_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/paddock-tests}

say() {
    printf '%s\n' "$*" >&2
}

is_there() {
    case $1 in
        command) command -v "$2" >/dev/null 2>&1 ;;
        file) [ -e "$2" ] ;;
        any)
            for found in $2; do
                [ -e "$found" ] && return 0
            done
            return 1
            ;;
        library)
            for found in /usr/lib/"$2" /usr/lib64/"$2" /usr/lib/*/"$2" /lib/*/"$2"; do
                [ -e "$found" ] && return 0
            done
            return 1
            ;;
    esac
}

# Sets `missing` (what was looked for) and `packages` (what brings it).
look() {
    missing='' packages=''
    while read -r kind what package; do
        [ -n "$kind" ] || continue
        is_there "$kind" "$what" && continue
        missing="$missing $what"
        packages="$packages $package"
    done <<END
$1
END
}

# A newer Python first; a version manager's dead shim fails here and is passed over.
find_python() {
    for candidate in python3.13 python3.12 python3.11 python3; do
        python=$("$candidate" -c '
import sys
sys.exit("too old") if sys.version_info < (3, 11) else print(sys._base_executable)
' 2>/dev/null) && return 0
    done
    say "Paddock needs Python 3.11 or newer; python3.13, 3.12, 3.11 and python3 were tried."
    say "  fix: install one of them, for example with: apt-get install python3"
    exit 1
}

# Lock files of this kind are understood since uv 0.8.
find_uv() {
    for uv in "$tools/bin/uv" uv "${HOME:-/root}/.local/bin/uv"; do
        version=$("$uv" --version 2>/dev/null) || continue
        case $version in
            'uv 0.'[0-7].*) ;;
            'uv '*) return 0 ;;
        esac
    done
    uv=''
    return 1
}

python_is_ready() {
    key=$(cat scripts/setup.sh pyproject.toml uv.lock | sha256sum)
    [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$root $key" ]
}

can_be_root() {
    [ "$(id -u)" = 0 ] && return 0
    command -v sudo >/dev/null 2>&1 || return 1
    sudo -n true 2>/dev/null || [ -t 0 ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

install_as_root() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        "$@" >&2
}

# docker-cli|docker.io: what is one package here is two there.
choose_packages() {
    chosen=''
    for package in $packages; do
        while [ "$package" != "${package#*|}" ] && ! apt-cache show "${package%%|*}" >/dev/null 2>&1; do
            package=${package#*|}
        done
        chosen="$chosen ${package%%|*}"
    done
}

container_engine_answers() {
    for socket in /var/run/docker.sock "${XDG_RUNTIME_DIR:-/nowhere}/podman/podman.sock"; do
        [ -S "$socket" ] && [ -w "$socket" ] && return 0
    done
    [ -n "${DOCKER_HOST:-}" ]
}

refuse_or_go_on() {
    if [ "$mode" = run ] && container_engine_answers; then
        say "Going on with the container engine that is here; local sandboxes need the packages above."
        return 0
    fi
    say "To go on without them (what needs them will say so): make SETUP=python <target>"
    exit 1
}

install_packages() {
    say "Missing for '$mode':$missing"
    if ! command -v apt-get >/dev/null 2>&1; then
        say "This is neither Debian nor Ubuntu. Install what your system calls these packages:"
        say "   $packages"
        refuse_or_go_on
        return 0
    fi
    if ! can_be_root; then
        say "You are not root and sudo is not available. Let root run:"
        choose_packages
        say "    apt-get update && $root/scripts/apt-install.sh$chosen"
        refuse_or_go_on
        return 0
    fi
    say "Installing these system packages with apt-get:$packages"
    install_as_root apt-get -q -o DPkg::Lock::Timeout=300 update
    choose_packages
    # shellcheck disable=SC2086  # a list of words
    install_as_root "$root/scripts/apt-install.sh" $chosen
    say "The services of these packages were neither started nor enabled."
}

# gVisor, for tests only. Without it, tests report it as missing, so this step does not fail. After
# a failure the next attempt is a day later.
find_runsc() {
    [ -x "$test_cache/bin/runsc" ] && return 0
    runsc flags 2>&1 | grep -q systrap && return 0
    failure=$test_cache/runsc-failure
    if [ -n "$(find "$failure" -mtime -1 2>/dev/null)" ]; then
        why=$(cat "$failure")
    else
        say "Fetching runsc into $test_cache/bin, for tests only"
        if why=$(scripts/get-runsc.sh "$test_cache/bin/runsc"); then
            return 0
        fi
        { mkdir -p "$test_cache" && printf '%s\n' "$why" >"$failure"; } 2>/dev/null || true
    fi
    say "Tests that need runsc will not run: $why"
    say "  The next attempt is in a day, or when you remove $failure"
}

install_uv() {
    say "Installing uv into $tools (none was found that is new enough)"
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.8'
    uv=$tools/bin/uv
}

sync_python() {
    case $(cat "$stamp" 2>/dev/null) in
        '' | "$root "*) ;;
        *) rm -rf .venv ;; # copied from another directory: its scripts point back there
    esac
    say "Installing the Python packages of uv.lock into .venv"
    if ! [ -x .venv/bin/python ]; then
        export UV_PYTHON="$python"
    fi
    "$uv" sync --frozen --quiet
    printf '%s\n' "$root $key" >"$stamp"
}

case $mode in
    python) needs='' ;;
    run) needs=$run_needs ;;
    test) needs=$run_needs$test_needs ;;
    soak) needs=$run_needs$test_needs$soak_needs ;;
    *)
        say "usage: $0 [python | run | test | soak]"
        exit 2
        ;;
esac

# Bytecode makes everything after the first start two to three times quicker.
unset PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
export UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1

look "$needs"
if ! python_is_ready; then
    find_python
    if ! find_uv && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        missing="$missing ensurepip"
        packages="$packages $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')|python3-venv"
    fi
fi
[ -z "$missing" ] || install_packages

# A certificate authority of your own counts for downloads too.
if [ -e "$ca_bundle" ]; then
    export SSL_CERT_FILE="${SSL_CERT_FILE:-$ca_bundle}" PIP_CERT="${PIP_CERT:-$ca_bundle}"
fi
if ! python_is_ready; then
    [ -n "$uv" ] || install_uv
    sync_python
fi
case $mode in
    test | soak) find_runsc ;;
esac
