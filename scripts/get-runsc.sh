#!/bin/sh
# Puts gVisor's runsc at the given path, for tests. Needs no root and installs nothing.
#
# First choice is Debian's package of trixie. It has no dependencies and also runs on older releases,
# whose own packages lack the systrap platform. Otherwise Go builds the current version.
# If neither works, stdout says why.
set -eu

target=$1
suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The module is built from the branch `go`, which needs no other build tool.
module=gvisor.dev/gvisor/runsc@latest

# The output of apt and go is logged, and shown only after a failure.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
log=$work/log

is_usable() {
    "$1" flags 2>&1 | grep -q systrap
}

# apt with separate directories; other settings of the host, such as proxies, still apply.
private_apt() {
    apt-get -q -c "$work/apt.conf" "$@" >>"$log" 2>&1
}

write_apt_configuration() {
    mkdir -p "$work/lists/partial" "$work/archives/partial"
    : >"$work/status"
    cat >"$work/apt.conf" <<END
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Acquire::Languages "none";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
END
}

# Mirrors in the host's apt sources for its own release, in either file format.
mirrors() {
    release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # apt's variables
    apt-get indextargets --format '$(COMPONENT) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>>"$log" |
        while read -r component name uri; do
            case "$component $name" in
                "main $release" | 'main stable' | 'main testing' | 'main unstable' | 'main sid')
                    printf '%s\n' "$uri"
                    ;;
            esac
        done | sort -u
}

fetch_package() {
    for program in apt-get dpkg-deb; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
    write_apt_configuration
    for uri in $(mirrors); do
        printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$work/sources.list"
        if private_apt update && (cd "$work" && private_apt download runsc) &&
            dpkg-deb -x "$work"/runsc_*.deb "$work/package" >>"$log" 2>&1; then
            found=$work/package/usr/bin/runsc
            is_usable "$found" && return 0
        fi
    done
    return 1
}

build() {
    command -v go >/dev/null 2>&1 || return 1
    echo "Building runsc with Go; this takes some minutes" >&2
    GOBIN=$work/bin CGO_ENABLED=0 go install "$module" >>"$log" 2>&1 || return 1
    found=$work/bin/runsc
    is_usable "$found"
}

if ! fetch_package && ! build; then
    echo "neither Debian's package ($suite) nor a build with Go worked: $(tail -n 1 "$log" 2>/dev/null)"
    exit 1
fi
mkdir -p "$(dirname "$target")"
# Atomically: another run may look for it at the same time.
cp "$found" "$target.$$"
chmod 755 "$target.$$"
mv "$target.$$" "$target"
