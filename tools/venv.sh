#!/bin/sh
# Makes the virtual environment .venv and installs Holdfast with the given extras into it.
#
#   tools/venv.sh demo,dev
#
# Needs Python 3.11 or newer and nothing else; PYTHON=/path/to/python chooses one.
set -eu
cd "$(dirname "$0")/.."
extras=$1
venv=.venv
here=$(pwd -P)

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "Holdfast needs Python 3.11 or newer; ${PYTHON:-python3} is older or missing." \
        "Install one, or name one you have: make PYTHON=/path/to/python3.12 ..."
}

create() {
    python=$(find_python)
    echo "Making $venv with $("$python" --version)"
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --clear "$venv"
    elif "$python" -c 'import venv' 2>/dev/null; then  # as Debian and Ubuntu split it up
        "$python" -m venv --clear --without-pip "$venv"
        "$venv/bin/python" tools/get_pip.py || {
            rm -rf "$venv"
            fail "This Python cannot install packages: it came without its module ensurepip." \
                "Install that (Debian and Ubuntu: apt install python3-venv) and try again."
        }
    else
        fail "This Python came without its module venv." \
            "Install that (Debian and Ubuntu: apt install python3-venv) and try again."
    fi
}

# A checkout that was moved or copied has an environment that still points at its old place.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
    { [ -f "$venv/.home" ] && [ "$(cat "$venv/.home")" != "$here" ]; }; then
    create
fi
printf '%s' "$here" >"$venv/.home"
echo "Installing Holdfast [$extras] into $venv"

# Python compiles the modules that it imports; pip would compile all 10,000 (20 s).
pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
        --retries 10 --timeout 60 "$@"
}

# In a fifth of pip's time. uv does not read pip's settings.
uv_install() {
    ! "$venv/bin/python" -m pip config list | grep -Eq 'index|proxy' &&
        pip_install uv &&
        "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"
}

uv_install --editable ".[$extras]" || pip_install --editable ".[$extras]"
