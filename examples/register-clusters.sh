#!/bin/sh
# Registers workload clusters with a control plane, step by step as an operator does it.
#
#   examples/register-clusters.sh CONTROL_PLANE CONTEXT...
#
# The control plane's kubeconfig and a context for each workload cluster have to be in the KUBECONFIG list. Each cluster
# is registered under the name of its context. AGENT_FLAGS is passed on; without it the newest agent that supports the
# cluster is installed, which may be one line older or newer than the control plane.
set -eu

control_plane=$1
shift
namespace=fleet

for context in "$@"; do
    kubectl --context "$context" create namespace "$namespace"
    kubectl --context "$control_plane" -n "$namespace" get secret fleet-cluster-init-kubeconfig -o yaml |
        kubectl --context "$context" apply -f -
    # shellcheck disable=SC2086 # several flags may be in it
    kubectl fleet install agent "$context" --context "$context" --namespace "$namespace" ${AGENT_FLAGS---version auto}
done

kubectl get clusters --context "$control_plane"
kubectl fleet get clusters --context "$control_plane"
