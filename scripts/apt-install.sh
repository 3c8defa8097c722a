#!/bin/sh
# Installs Debian packages as root, without starting or enabling the services that they bring:
# apt-install.sh PACKAGE...
#
# Tests start their own Docker, PostgreSQL and nginx. Services that are already enabled or running
# are not affected, even if their packages are upgraded. No PostgreSQL cluster is created.
set -eu

self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
# As in Debian's own tools, DPKG_ROOT is the root of the system; tests set it.
policy=${DPKG_ROOT:-}/usr/sbin/policy-rc.d
saved=$policy.before-paddock
system_preset=${DPKG_ROOT:-}/run/systemd/system-preset/00-paddock.preset
user_preset=${DPKG_ROOT:-}/run/systemd/user-preset/00-paddock.preset
no_cluster=${DPKG_ROOT:-}/etc/postgresql-common/createcluster.d/paddock.conf

# apt calls this once it holds dpkg's lock, so that no other installation is affected.
hold_services() {
    mkdir -p "$(dirname "$no_cluster")"
    echo 'create_main_cluster = false' >"$no_cluster"
    [ -d "${DPKG_ROOT:-}/run/systemd/system" ] || return 0

    # Presets are read only when a unit is installed for the first time.
    for preset in "$system_preset" "$user_preset"; do
        mkdir -p "$(dirname "$preset")"
        echo 'disable *' >"$preset"
    done

    # Packages that also have an init script start their service even if it is disabled.
    if [ -e "$policy" ]; then
        mv "$policy" "$saved"
    fi
    cat >"$policy.new" <<END
#!/bin/sh
# paddock: written by scripts/apt-install.sh and removed when it ends.
unit=\$1
[ "\$unit" != --quiet ] || unit=\$2
if ! systemctl --quiet is-enabled "\$unit" 2>/dev/null && ! systemctl --quiet is-active "\$unit" 2>/dev/null; then
    exit 101
fi
[ ! -x '$saved' ] || exec '$saved' "\$@"
END
    chmod 755 "$policy.new"
    mv "$policy.new" "$policy"
}

release_services() {
    rm -f "$system_preset" "$user_preset" "$no_cluster" "$policy.new"
    rmdir "$(dirname "$no_cluster")" 2>/dev/null || true
    if [ -e "$saved" ]; then
        mv "$saved" "$policy"
    elif grep -qs '^# paddock: ' "$policy"; then
        rm -f "$policy"
    fi
}

if [ "${1:-}" = --hold-services ]; then
    release_services # clean up after a killed installation
    hold_services
    exit 0
fi

trap release_services EXIT
trap 'exit 130' HUP INT TERM
apt-get -q -o DPkg::Lock::Timeout=300 -o "DPkg::Pre-Invoke::='$self' --hold-services" \
    install -y --no-install-recommends "$@"
