#!/bin/sh
# Create one virtual environment per peer: setup.sh FOLDER [PYTHON]
#
# Versions are those of the published numbers. torch comes first and pinned, so that megatron-core
# finds it and pulls no other build; a CPU build is enough (choose it through pip's own settings,
# e.g. PIP_EXTRA_INDEX_URL, where the default index would give a CUDA build).
set -eu

folder=${1:?usage: setup.sh FOLDER [PYTHON]}
python=${2:-python3}
mkdir -p "$folder"

environment() { # NAME PACKAGES... ; a second call for the same NAME adds packages
    name=$1
    shift
    [ -x "$folder/$name/bin/python" ] || "$python" -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

environment gigatoken gigatoken==0.10.0
environment megatron torch==2.13.0
environment megatron megatron-core==0.16.1 gigatoken==0.10.0
environment datatrove 'datatrove[io,processing]==0.10.1' tokenizers==0.23.3

environment trl torch==2.13.0
environment trl trl==1.16.0
environment seqpacker seqpacker==0.1.3 numpy  # builds from source where there is no wheel: needs Rust

# The loaders. torch is named twice: alone, litdata and streaming would replace it by a later one.
environment litdata torch==2.13.0
environment litdata torch==2.13.0 litdata==0.2.76
environment streaming torch==2.13.0
environment streaming torch==2.13.0 mosaicml-streaming==0.13.0
environment datasets torch==2.13.0
environment datasets torch==2.13.0 datasets==5.2.0 torchdata==0.11.0

for name in gigatoken megatron datatrove trl seqpacker litdata streaming datasets; do
    echo "$name: $folder/$name/bin/python"
done
