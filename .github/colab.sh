#!/usr/bin/env bash
# Runs the notebooks with Colab's versions of all packages, in .venv-colab:
# PYTHON=python3.12 .github/colab.sh
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p _build
list=_build/colab_constraints.txt
# Left out: what Colab installs from files, and CUDA, which PyTorch chooses.
sed -E '/ @ /d; /^(cuda|nvidia)-/d; s/\+cu[0-9]+$//' .github/colab_constraints.txt > $list
"${PYTHON:-python3}" -m venv .venv-colab
python=.venv-colab/bin/python
$python -m pip install -q -c $list ipykernel pytest pytest-xdist nbval -e .
OMP_NUM_THREADS=1 $python -m pytest -q -c /dev/null --rootdir . \
  -n logical --maxprocesses 4 --dist loadscope -p no:cacheprovider \
  --nbval-lax --nbval-current-env --nbval-cell-timeout 300 chapters/[0-9]*.ipynb
