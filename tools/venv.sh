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

# Compiled without optimizations, as by pyenv, Python takes twice as long to start and a third more
# time for the rest. Those of distributions, conda and uv are compiled with them.
is_fast() {
    "$1" - <<'EOF'
import sys, sysconfig
options = str(sysconfig.get_config_var("CONFIG_ARGS"))
sys.exit(sys.base_prefix != "/usr" and "--enable-optimizations" not in options)
EOF
}

# Distributions have these in packages of their own; extensions of PyTorch need the header.
is_complete() {
    "$1" - <<'EOF' 2>/dev/null
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
EOF
}

# The first that is new enough, or a fast one in place of a slow one.
find_python() {
    first=
    for candidate in ${PYTHON:-python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11}; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if [ -n "${PYTHON:-}" ] || { [ -z "$first" ] && is_fast "$candidate"; } ||
            { [ -n "$first" ] && is_fast "$candidate" && is_complete "$candidate"; }; then
            echo "$candidate"
            return
        fi
        first=${first:-$candidate}
    done
    [ -z "$first" ] || { echo "$first"; return; }
    fail "Holdfast needs Python 3.11 or newer; ${PYTHON:-python3} is older or missing." \
        "Install one, or name one you have: make PYTHON=/path/to/python3.12 ..."
}

create() {
    python=$(find_python)
    echo "Making $venv with $("$python" --version) ($python)"
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
