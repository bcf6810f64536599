#!/bin/sh
# Ensures that kubectl is on PATH, with which tests render the manifests, without a cluster. Installs it by apt as root
# on Debian or Ubuntu; otherwise prints how to.
set -eu

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

renders() {
    command -v kubectl >/dev/null && kubectl kustomize --help >/dev/null 2>&1
}

if renders; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "no kubectl; installing Debian's by apt"
    apt-get update -qq || fail "apt-get update failed; the tests of the manifests need kubectl"
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends kubernetes-client >/dev/null ||
        fail "apt could not install kubernetes-client; the tests of the manifests need kubectl"
    renders || fail "kubernetes-client is installed, but there is no kubectl on PATH that renders"
    say "ready: $(kubectl version --client --short 2>/dev/null || command -v kubectl)"
    exit 0
fi
fail "the tests of the manifests need kubectl, 1.20 or newer.
  Debian:     sudo apt-get install kubernetes-client
  Fedora:     sudo dnf install kubernetes-client
  macOS:      brew install kubernetes-cli
  elsewhere:  https://kubernetes.io/docs/tasks/tools/"
