#!/bin/sh
# Learns sums from examples, then from rewards; evaluates and serves the model. $1: a folder for the runs; $2: a python.
set -eu
runs=$(mkdir -p "$1" && cd "$1" && pwd) python=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
cd "$(dirname "$0")/../generated"
export PYTHONPATH="$PWD/../demo"

"$python" ../demo/sums.py "$runs"
train() {
    "$python" -m llama2_cpu.train --preset tiny --width 128 --layers 4 --heads 4 --kv-heads 4 --head-size 32 \
        --mlp-width 384 --dtype float32 --sequence-length 24 --batch-size 64 --eval-every 50 "$@"
}
train --data "$runs/examples.jsonl" --steps 200 --learning-rate 3e-3 --checkpoint-dir "$runs/base"
"$python" -m llama2_cpu.checkpoint export "$runs/base" "$runs/base-hf"
"$python" -m llama2_cpu.checkpoint import "$runs/base-hf" "$runs/tuned"
train --objective grpo --reward sums:right --data "$runs/prompts.jsonl" --eval-data "$runs/held_out.jsonl" \
    --completion-tokens 8 --group-size 16 --steps "${STEPS:-200}" --learning-rate 2e-4 --weight-decay 0 \
    --checkpoint-dir "$runs/tuned"

"$python" -m llama2_cpu.serve --checkpoint-dir "$runs/tuned" --port "${PORT:-8011}" --max-length 64 > "$runs/serve.log" 2>&1 &
server=$!
trap 'kill $server' EXIT
"$python" ../demo/sums.py "$runs" --ask "http://localhost:${PORT:-8011}"
echo "curves: $runs/base/loss.png, $runs/tuned/loss.png, $runs/tuned/scores.png; completions: $runs/tuned/completions.jsonl"
