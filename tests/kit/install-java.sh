#!/bin/sh
# Installs Debian's Java for the tests on Spark, and for whatever else here runs on it.
set -e
if ! command -v apt-get >/dev/null; then
    echo "Java is missing and there is no apt-get: the tests on Spark will be skipped." >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "Java is missing and only root can install it: the tests on Spark will be skipped." >&2
    exit 1
fi
echo "Installing Debian's package openjdk-17-jre-headless, or its successor, which Spark needs."
$as_root apt-get update -qq >/dev/null || true
for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
    if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes \
        --no-install-recommends "$package" >/dev/null 2>&1; then
        exit 0
    fi
done
echo "It could not be installed: the tests on Spark will be skipped." >&2
exit 1
