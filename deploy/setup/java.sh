#!/bin/sh
# Ensures that Spark finds Java 17 or newer: at JAVA_HOME if set, else on PATH. Installs it by apt as root on Debian or
# Ubuntu; otherwise prints how to.
set -eu

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Prints the major version: 17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_402"`.
java_major() {
    "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 |
        sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

has_java() {
    major=$(java_major)
    [ "${major:-0}" -ge 17 ]
}

install_by_apt() {
    say "no Java 17 or newer; installing one by apt"
    apt-get update -qq || fail "apt-get update failed; Spark needs Java 17 or newer"
    # Newer Debian releases only have 21.
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends "$package" >/dev/null; then
            return
        fi
    done
    fail "apt could not install openjdk-17-jre-headless; Spark needs Java 17 or newer"
}

if has_java; then
    exit 0
fi
if [ -n "${JAVA_HOME:-}" ]; then
    fail "JAVA_HOME is $JAVA_HOME, which is Java ${major:-missing}; Spark needs Java 17 or newer.
  Point JAVA_HOME to one, or unset it to use the java on PATH."
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_by_apt
    has_java || fail "Java is installed, but the java on PATH is still ${major:-missing}"
    say "ready: Java $major"
    exit 0
fi
fail "Spark needs Java 17 or newer; on PATH is ${major:-none}.
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@17, then export JAVA_HOME=\$(brew --prefix openjdk@17)
  elsewhere:       export JAVA_HOME=/path/to/jdk"
