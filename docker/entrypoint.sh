#!/bin/sh
# The first process of a container. On Kubernetes Spark asks the image for a driver or an executor; any other command is
# run as it stands.
set -eu

spark_home() {
    python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)'
}

case ${1-} in
driver)
    shift
    # Spark copies jars to where it is
    cd "$(mktemp -d)"
    exec spark-submit --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        "$@"
    ;;
executor)
    cd "$(mktemp -d)"
    # options of the JVM are in SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one argument each
    set --
    number=0
    while eval "test \"\${SPARK_JAVA_OPT_$number+given}\""; do
        eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
        number=$((number + 1))
    done
    classes=${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_HOME:-$(spark_home)}/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}:$PWD
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classes" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
