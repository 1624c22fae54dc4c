# Read by the shells of `spark-submit` before they start Spark's JVM (as BASH_ENV; see session.py).
#
# Spark's launcher has the JVM load a module that only Spark ML computes with. The JVM warns of it on standard error at
# each start, and no option of its own silences that. Just before Spark's script runs the command that the launcher has
# built, this takes the module out of it. With a Spark whose script does that in another way, the warning is back.

_without_vector_module() {
    local kept=() argument
    for argument in "${CMD[@]}"; do
        [[ $argument == --add-modules=jdk.incubator.vector ]] || kept+=("$argument")
    done
    CMD=("${kept[@]}")
    unset BASH_ENV # the JVM's own children read nothing of ours
}

trap '[[ $BASH_COMMAND != "exec \"\${CMD[@]}\"" ]] || _without_vector_module' DEBUG
