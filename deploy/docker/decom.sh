#!/bin/bash
# Kubernetes' preStop hook of executors: the executor takes no new tasks, finishes its running ones, and exits.
# Kubernetes waits for this script at most for the pod's grace period.
set -euo pipefail

for process in /proc/[0-9]*; do
    # A process may end meanwhile.
    if [ "$(cat "$process/comm" 2>/dev/null)" = java ]; then
        pid=${process#/proc/}
        kill -s PWR "$pid"
        tail --pid="$pid" -f /dev/null
    fi
done
