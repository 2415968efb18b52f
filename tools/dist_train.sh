#!/usr/bin/env bash
# Train on several GPUs (or, without GPUs, CPU processes) on one or more machines, with torchrun.
#
#   tools/dist_train.sh CONFIG GPUS [arguments of tools/train.py]
#
# Several machines: run it on each with NNODES, NODE_RANK (0 on the first) and MASTER_ADDR set. Two runs on one machine
# need different PORTs. PYTHON selects another interpreter. A signal (SIGTERM, SIGINT, SIGHUP, SIGUSR1) stops after the
# step, with a checkpoint; TORCH_ELASTIC_SHUTDOWN_TIMEOUT is the number of seconds for it (default here: 120).
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
config=$1
gpus=$2
shift 2
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# for torchrun: signals to pass on (SIGUSR1 is not among its defaults; versions without this option end on it)
export PET_SIGNALS_TO_HANDLE=${PET_SIGNALS_TO_HANDLE:-SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1}
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-120}

exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node-rank="${NODE_RANK:-0}" \
    --nproc-per-node="$gpus" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" \
    --master-port="${PORT:-29500}" \
    "$tools/train.py" "$config" --launcher pytorch "$@"
