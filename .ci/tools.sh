#!/bin/sh
# Installs NVIDIA's offline tools into .tools: ptxas 12.9 (the last that knows sm_70), ptxas 13.0 and nvdisasm.
# They come as Python packages, are unpacked and not installed; no GPU, driver or CUDA toolkit is needed.
# Run again at will: what is there stays. Needs python3; makes its own pip where the system has none.
set -eu

cd "$(dirname "$0")/.."
mkdir -p .tools

# package version tool folder
want() {
    package=$1 version=$2 tool=$3 folder=$4
    if [ -x "$folder/$tool" ] && "$folder/$tool" --version >/dev/null 2>&1; then
        return
    fi
    work=$(mktemp -d .tools/unpack.XXXXXX)
    trap 'rm -rf "$work"' EXIT
    echo "fetching $package $version"
    $pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package==$version"
    python3 - "$work" "$tool" "$folder" <<'PYTHON'
import glob, os, sys, zipfile
work, tool, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
wheel = zipfile.ZipFile(glob.glob(os.path.join(work, "*.whl"))[0])
name = next(n for n in wheel.namelist() if n.endswith("/bin/" + tool))
partial = os.path.join(work, tool)
with open(partial, "wb") as out:
    out.write(wheel.read(name))
os.chmod(partial, 0o755)
os.replace(partial, os.path.join(folder, tool))
PYTHON
    rm -rf "$work"
    trap - EXIT
    "$folder/$tool" --version | tail -n 1
}

# The first python3 that has pip (the system's may have it where another one on PATH has not), else one with a pip of its own.
find_pip() {
    for python in python3 /usr/bin/python3; do
        if $python -m pip --version >/dev/null 2>&1; then
            pip="$python -m pip"
            return
        fi
    done
    pip=".tools/python/bin/python3 -m pip"
    if $pip --version >/dev/null 2>&1; then
        return
    fi
    rm -rf .tools/python
    if ! python3 -m venv .tools/python >/dev/null 2>&1; then
        rm -rf .tools/python
        echo "python3 has neither pip nor venv; on Debian and Ubuntu: apt install python3-pip" >&2
        exit 1
    fi
}

command -v python3 >/dev/null 2>&1 || { echo "python3 is missing" >&2; exit 1; }
find_pip
want nvidia-cuda-nvcc-cu12 12.9.86 ptxas .tools/12.9
want nvidia-cuda-nvcc 13.0.88 ptxas .tools/13.0
want nvidia-cuda-nvdisasm 13.2.51 nvdisasm .tools
