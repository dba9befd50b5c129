#!/usr/bin/env bash
# Make .venv and install what is missing on Debian or Ubuntu, saying in one line each what it does.
# `deploy/setup.sh server` is enough to speak, `deploy/setup.sh dev` is for the tests as well, and
# `deploy/setup.sh train` for training and its tests.
# Where nothing has changed since the last run it asks no package index anything.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TORCH=torch==2.13.0
readonly RESEMBLYZER=resemblyzer==0.1.4
readonly TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

say() { echo "setup: $*" >&2; }
stop() { say "$*"; exit 1; }

find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        echo "$candidate" && return
    done
    return 1
}

same_python() { [ "$(.venv/bin/python -VV 2>/dev/null)" = "$("$python" -VV)" ]; }

has_library() { "$python" -c "import ctypes; ctypes.CDLL('$1')" 2>/dev/null; }

has_browser() {
    command -v "${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable ||
        compgen -G "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}/chromium*"
}

# Ubuntu's own Chromium is a snap, which containers cannot install.
browser_from_apt() { ! grep -qs '^ID=ubuntu' /etc/os-release; }

missing_packages() {
    same_python || "$python" -c 'import ensurepip' 2>/dev/null ||
        "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
    has_library libopus.so.0 || echo libopus0
    [ "$extra" = dev ] || return 0
    has_library libatomic.so.1 || echo libatomic1 # for the Node.js in Playwright's package
    command -v curl >/dev/null || echo curl
    if browser_from_apt && ! has_browser >/dev/null; then echo chromium; fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_packages() {
    local line="apt-get install -y --no-install-recommends $*"
    if ! as_root true 2>/dev/null; then
        say "system packages are missing and this user may not install them; run: sudo $line"
        [[ $* != *-venv* ]] || exit 1
        return
    fi
    say "installing system packages: $*"
    # shellcheck disable=SC2086
    { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive $line -qq; } \
        >/dev/null || say "that failed; try: sudo apt-get update && sudo $line"
}

make_venv() {
    same_python && return
    say "making .venv with $("$python" -V)"
    "$python" -m venv --clear .venv
}

# Debian 12's pip would otherwise build opuslib in a way it warns about.
pip_install() {
    PIP_USE_PEP517=1 .venv/bin/python -m pip --disable-pip-version-check install -qq "$@"
}

install_torch() {
    if ! command -v nvidia-smi >/dev/null; then
        pip_install --index-url "$TORCH_CPU_INDEX" --timeout 10 --retries 0 "$TORCH" 2>/dev/null &&
            return
        say "PyTorch's CPU builds are out of reach; taking $TORCH from the default index"
    fi
    pip_install "$TORCH"
}

install_python_packages() {
    local key
    local -A extras=([server]=server [dev]=server,dev [train]=server,dev,train)
    local -A enough=([server]='server|dev|train' [dev]='dev|train' [train]=train)
    key=$(cat pyproject.toml deploy/setup.sh <("$python" -VV) | sha256sum | cut -d' ' -f1)
    grep -qsxE "$key (${enough[$extra]})" .venv/installed && return
    say "installing Python packages into .venv (some minutes the first time)"
    install_torch
    pip_install -e ".[${extras[$extra]}]"
    # It asks for a webrtcvad that has to be compiled; the extra has one that is.
    [ "$extra" != train ] || pip_install --no-deps "$RESEMBLYZER"
    echo "$key $extra" >>.venv/installed
}

install_browser() {
    if [ "$extra" != dev ] || has_browser >/dev/null; then return; fi
    browser_from_apt && return
    say "installing Chromium with Playwright"
    .venv/bin/python -m playwright install --with-deps chromium >/dev/null ||
        say "that failed; run: sudo .venv/bin/playwright install --with-deps chromium"
}

extra=${1:-}
[[ $extra =~ ^(server|dev|train)$ ]] || stop "usage: deploy/setup.sh server|dev|train"
python=$(find_python) || stop "Python 3.11 or later is needed; run: sudo apt-get install -y python3"
packages=$(missing_packages)
# shellcheck disable=SC2086
[ -z "$packages" ] || install_packages $packages
make_venv
install_python_packages
install_browser
