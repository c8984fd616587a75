#!/bin/sh
# Installs Debian's PostgreSQL for the tests, without the server it would start by itself.
set -e
if ! command -v apt-get >/dev/null; then
    echo "PostgreSQL is missing and there is no apt-get: its tests will be skipped." >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "PostgreSQL is missing and only root can install it: its tests will be skipped." >&2
    exit 1
fi
echo "Installing Debian's package postgresql, which the tests of that store need."
settings=/etc/postgresql-common/createcluster.conf
if ! [ -e "$settings" ]; then
    $as_root mkdir -p "$(dirname "$settings")"
    echo "create_main_cluster = false" | $as_root tee "$settings" >/dev/null
fi
$as_root apt-get update -qq >/dev/null || true
if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
    -o Dpkg::Options::=--force-confold postgresql >/dev/null; then
    echo "It could not be installed: the tests of that store will be skipped." >&2
    exit 1
fi
