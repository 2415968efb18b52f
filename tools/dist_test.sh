#!/usr/bin/env bash
# Evaluate a checkpoint on several GPUs (or CPU processes) on one or more machines, with torchrun.
#
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [arguments of tools/test.py]
#
# Several machines: run it on each with NNODES, NODE_RANK (0 on the first) and MASTER_ADDR set. Two runs on one machine
# need different PORTs. PYTHON selects another interpreter.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
config=$1
checkpoint=$2
gpus=$3
shift 3
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" \
    --node-rank="${NODE_RANK:-0}" \
    --nproc-per-node="$gpus" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" \
    --master-port="${PORT:-29500}" \
    "$tools/test.py" "$config" "$checkpoint" --launcher pytorch "$@"
