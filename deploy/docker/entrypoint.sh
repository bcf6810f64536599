#!/bin/bash
# The image's entry point, under tini. Spark on Kubernetes starts containers with the argument `driver` or `executor`
# and further settings in the environment; anything else is a command.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case "${1:-}" in
driver)
    shift
    set -- "$here/driver.sh" "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
spark-submit | */bin/spark-submit)
    set -- "$here/driver.sh" "$@"
    ;;
executor)
    # JVM options are in SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ..., and may contain spaces.
    options=()
    for ((i = 0; ; i++)); do
        name=SPARK_JAVA_OPT_$i
        [ -n "${!name+set}" ] || break
        options+=("${!name}")
        # Spark (4.3) reads this file only in the driver, where it knows its master, and encodes it as base64.
        if [[ ${!name} == -Dspark.authenticate.secret.file=* ]]; then
            _SPARK_AUTH_SECRET=$(base64 -w 0 "${!name#*=}")
            export _SPARK_AUTH_SECRET
        fi
    done
    set -- "$JAVA_HOME/bin/java" "${options[@]}" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec "${TINI:-/usr/bin/tini}" -s -- "$@"
