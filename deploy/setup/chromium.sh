#!/bin/sh
# Ensures that chromium and chromedriver are on PATH, for the browser tests of reports. Installs them by apt as root on
# Debian; otherwise prints how to. Not an error if missing: those tests skip.
set -eu

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

has_browser() {
    command -v chromedriver >/dev/null &&
        { command -v chromium >/dev/null || command -v google-chrome >/dev/null; }
}

if has_browser; then
    exit 0
fi
# Ubuntu's package is a stub for snap.
if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && ! grep -qi '^ID=ubuntu' /etc/os-release; then
    say "no chromium; installing it by apt, some 120 MB"
    apt-get update -qq || fail "apt-get update failed; tests of reports need chromium"
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null ||
        fail "apt could not install chromium and chromium-driver; tests of reports need them"
    has_browser || fail "chromium is installed, but chromium or chromedriver is not on PATH"
    say "ready: chromium"
    exit 0
fi
say "no chromium and chromedriver on PATH: tests that look at reports in a browser will be skipped.
  Debian:  sudo apt-get install chromium chromium-driver
  Fedora:  sudo dnf install chromium chromedriver"
