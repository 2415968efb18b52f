#!/usr/bin/env bash
# Evaluate a checkpoint on a Slurm cluster, with one task per GPU.
#
#   [GPUS=8] [GPUS_PER_NODE=8] [CPUS_PER_TASK=5] [SRUN_ARGS=…] \
#       tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [arguments of tools/test.py]
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
partition=$1
job_name=$2
config=$3
checkpoint=$4
shift 4
gpus=${GPUS:-8}
gpus_per_node=${GPUS_PER_NODE:-$((gpus < 8 ? gpus : 8))}
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# SRUN_ARGS is split into words intentionally
# shellcheck disable=SC2086
exec srun --partition="$partition" \
    --job-name="$job_name" \
    --gres="gpu:$gpus_per_node" \
    --ntasks="$gpus" \
    --ntasks-per-node="$gpus_per_node" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u "$tools/test.py" "$config" "$checkpoint" --launcher slurm "$@"
