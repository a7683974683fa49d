#!/usr/bin/env bash
# Build the sdist, and the wheel from it, install that into an empty environment and use it in an
# empty folder; with DIST, the wheel in that folder:
# [PYTHON=python3.13] [UV=uv] [DIST=dist] scripts/trust/test_wheel.sh
set -euo pipefail
PYTHON=${PYTHON:-python3}
UV=${UV:-uv}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DIST=${DIST:-$work/dist}
test -d "$DIST" || "$UV" build --quiet --out-dir "$DIST" --python "$PYTHON" "$root"
"$UV" venv --quiet --python "$PYTHON" "$work/venv"
# the versions of the lock, so that what is tested today is what is tested tomorrow
sed -E '/^ +--hash/d; s/ \\$//' "$root/requirements.lock" > "$work/constraints.txt"
"$UV" pip install --quiet --compile-bytecode --python "$work/venv/bin/python" -c "$work/constraints.txt" "$DIST"/*.whl
mkdir "$work/elsewhere"
cd "$work/elsewhere"
"$work/venv/bin/fedclust" doctor
"$work/venv/bin/fedclust" list algorithm
"$work/venv/bin/fedclust" example own_algorithm ../mine
"$work/venv/bin/fedclust" run --config-dir ../mine algorithm=server_momentum rounds=2 progress=false name=mine
"$work/venv/bin/python" -c 'import importlib.metadata, re, sys
text = importlib.metadata.metadata("fedclust").get_payload()
assert text.startswith("# fedclust")
sys.exit(re.search(r"\]\((?!https?:|#)\S+", text) and "the readme of the wheel has a relative link")'
test -f "$work"/venv/lib/python3*/site-packages/fedclust/py.typed
"$work/venv/bin/fedclust" run rounds=6 progress=false
printf 'x,who,label\n1,a,u\n2,a,v\n3,b,u\n4,b,v\n' > ../own.csv
"$work/venv/bin/fedclust" run dataset=csv dataset.path=../own.csv dataset.client=who \
    partition=natural model=linear algorithm=fedavg rounds=1 progress=false name=csv
"$work/venv/bin/fedclust" report outputs/default
test -s outputs/default/report/report.html
test "$(ls)" = outputs
echo "the wheel works"
