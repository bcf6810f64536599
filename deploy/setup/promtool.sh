#!/bin/sh
# Puts promtool, which checks Prometheus rules, into .venv/bin, extracted from Debian's package `prometheus` without
# installing the server. Elsewhere the rule tests use any promtool on PATH.
set -eu

cd "$(dirname "$0")/../.."
target=.venv/bin/promtool

say() { printf 'setup: %s\n' "$*"; }

if [ -x "$target" ] || command -v promtool >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "no promtool, and no apt to get it by: the test of deploy/prometheus/alerts.yaml is left out"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
download() { (cd "$folder" && apt-get download -qq prometheus >/dev/null 2>&1); }
if ! download; then
    if [ "$(id -u)" = 0 ]; then
        apt-get update -qq
    fi
    if ! download; then
        say "apt could not download prometheus: the test of deploy/prometheus/alerts.yaml is left out"
        exit 0
    fi
fi
dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -x -C "$folder" ./usr/bin/promtool
mv "$folder/usr/bin/promtool" "$target"
say "ready: $target"
