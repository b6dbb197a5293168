#!/usr/bin/env bash
# Installs the environment of the paper's GPU runs, flash-attn included: what both containers and docs/verl.md call, and
# what CI looks up with --dry-run, so that none of them can differ.
#
#   PYTHON=/opt/venv/bin/python docker/install.sh             in a CUDA toolkit 13.0 (flash-attn is compiled: half an hour)
#   PYTHON=.venv/bin/python docker/install.sh --dry-run       is every version there to be installed? Installs nothing
#
# The dry run leaves out flash-attn, which is a source: to read what it needs, pip would build it with the torch and the
# CUDA compiler that a dry run does not install. It does not follow dependencies, which would download gigabytes.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=alfworld,webshop,verl-gpu,track,slurm
python=${PYTHON:-python3}

pinned() { "$python" -m pip install --disable-pip-version-check -c constraints-verl-gpu.txt "$@"; }

if [ "${1-}" = --dry-run ]; then
  mapfile -t named < <("$python" - "$extras" <<'PY'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
for extra in sys.argv[1].split(","):
    print(*(name for name in extras[extra] if not name.startswith("flash-attn")), sep="\n")
PY
  )
  pinned --dry-run --no-deps --ignore-installed --quiet "${named[@]}"
  exit
fi

pinned torch packaging ninja wheel setuptools
MAX_JOBS=${MAX_JOBS:-4} pinned --no-build-isolation flash-attn
pinned -e ".[$extras]"
