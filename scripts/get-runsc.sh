#!/bin/sh
# Puts gVisor's runsc at the given path, for tests. Needs no root and installs nothing.
#
# Debian's own package comes first: that of trixie, which depends on nothing and runs on older
# releases, whose packages lack the systrap platform. Otherwise Go builds the current version.
# Where neither works, stdout says why.
set -eu

target=$1
suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# The module is the branch `go`, which needs no other build tool.
module=gvisor.dev/gvisor/runsc@latest

# What apt and go say, so that only a failure shows it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
log=$work/log

is_usable() {
    "$1" flags 2>&1 | grep -q systrap
}

# An apt configuration with directories of its own; proxies and the like stay the host's.
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

# Mirrors that the host's sources name for its own release, in either format of those files.
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
    echo "neither Debian's package ($suite) nor a build with Go: $(tail -n 1 "$log" 2>/dev/null)"
    exit 1
fi
mkdir -p "$(dirname "$target")"
# In one step: another run may look for it at the same time.
cp "$found" "$target.$$"
chmod 755 "$target.$$"
mv "$target.$$" "$target"
