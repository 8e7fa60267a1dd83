# shellcheck shell=bash disable=SC2034
# What the scripts need and how they get it. Sourced; says what it installs before it does.

BUILD_PACKAGES="clang llvm libbpf-dev libelf-dev zlib1g-dev gcc libc6-dev gcc-multilib m4 make pkg-config ca-certificates curl"
RUN_PACKAGES="python3 ethtool iproute2 iperf3 iputils-ping procps util-linux"
GUEST_PACKAGES="qemu-system-x86 seabios busybox-static cpio zstd xz-utils kmod tcpdump python3 ibverbs-utils
    ibverbs-providers rdma-core perftest"
RUST_NEEDED=1.90

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Restarts the calling script as root, with the caller's Rust. Call: as_root "$@"
as_root() {
    [ "$(id -u)" != 0 ] || return 0
    command -v sudo >/dev/null || fail "needs root for network namespaces and AF_XDP: run it as root, or install sudo"
    echo "Going on as root (sudo): network namespaces and AF_XDP need it."
    exec sudo env "PATH=$PATH" "HOME=$HOME" ${CARGO_HOME:+"CARGO_HOME=$CARGO_HOME"} \
        ${RUSTUP_HOME:+"RUSTUP_HOME=$RUSTUP_HOME"} "$0" "$@"
}

# Gives what root wrote below DIR back to the user behind sudo.
give_back() {
    [ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID:$SUDO_GID" "$1"
}

# Installs the Debian packages that are missing.
need_packages() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "not Debian or Ubuntu: install the equivalents of ${missing[*]}"
    echo "Installing with apt: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null
    apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
        fail "apt-get could not install ${missing[*]}"
}

# Makes `cargo` a Rust of at least RUST_NEEDED, with rustfmt and clippy.
need_rust() {
    PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    local have
    have=$(rustc --version 2>/dev/null | awk '{print $2}') || true
    if [ "$(printf '%s\n' "$RUST_NEEDED" "${have:-0}" | sort -V | head -n 1)" != "$RUST_NEEDED" ]; then
        echo "Installing Rust with rustup into ${CARGO_HOME:-$HOME/.cargo} (found ${have:-none}, needed $RUST_NEEDED)"
        curl --proto '=https' --tlsv1.2 -sSf https://static.rust-lang.org/rustup/rustup-init.sh |
            sh -s -- -qy --no-modify-path --profile minimal -c rustfmt -c clippy
        PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    fi
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
    echo "Adding rustfmt and clippy with rustup"
    rustup component add rustfmt clippy
}
