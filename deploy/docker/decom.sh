#!/bin/bash
# What Kubernetes runs in an executor's container before it stops it: the executor takes no new tasks, ends those
# it has, and exits. Kubernetes waits for this script no longer than the pod's grace period.
set -euo pipefail

for process in /proc/[0-9]*; do
    # A process may end while we look at it.
    if [ "$(cat "$process/comm" 2>/dev/null)" = java ]; then
        pid=${process#/proc/}
        kill -s PWR "$pid"
        tail --pid="$pid" -f /dev/null
    fi
done
