#!/bin/sh
# Installs vmtax: verifies the SHA-256 checksum of the release's archive, then copies the program, its manual pages and shell
# completions below a prefix.
#
#     sh install.sh              downloads archive and checksum
#     sh install.sh DIRECTORY    takes both from a local directory
#
# The prefix is $PREFIX; by default /usr/local for root, ~/.local for others.
set -eu
umask 022

# As `make dist` fills them in from Cargo.toml. The address is empty until there is a release.
version='@VERSION@'
address='@ADDRESS@'

archive=vmtax-$version-x86_64-linux.tar.gz

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

need() { command -v "$1" >/dev/null 2>&1 || fail "there is no $1 on this host: install it first"; }

download() {
    from=$address/releases/download/v$version/$1
    if command -v curl >/dev/null 2>&1; then
        curl --fail --silent --show-error --location --output "$work/$1" "$from"
    elif command -v wget >/dev/null 2>&1; then
        wget --quiet --output-document "$work/$1" "$from"
    else
        fail "neither curl nor wget is on this host: download $archive and $archive.sha256 elsewhere, then \`sh install.sh DIRECTORY\`"
    fi || fail "$from cannot be downloaded"
}

copy() { cp "$directory/$1" "$work/$1" || fail "$directory has no readable $1: \`make dist\` makes it"; }

# Of the copy that is unpacked afterwards.
verify() {
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$archive\$/\1/p" "$work/$archive.sha256")
    [ -n "$expected" ] || fail "$archive.sha256 has no SHA-256 checksum of $archive: nothing was installed"
    actual=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
    [ "$actual" = "$expected" ] ||
        fail "$archive has the wrong SHA-256 checksum, $actual instead of $expected: nothing was installed; download it again"
}

# Each file is moved into place whole, so that a running vmtax can be replaced.
place() {
    tar -xzf "$work/$archive" -C "$work"
    mkdir -p "$prefix" || fail "$prefix cannot be made: set PREFIX to a directory of yours"
    prefix=$(cd "$prefix" && pwd)
    (cd "$work/vmtax-$version" && find . -type f) | while IFS= read -r file; do
        file=${file#./}
        # Of a user's directories systemd reads no unit of the system's.
        case $units$file in 0lib/systemd/system/*) continue ;; esac
        { mkdir -p "$prefix/$(dirname "$file")" && cp "$work/vmtax-$version/$file" "$prefix/$file.new" &&
            mv -f "$prefix/$file.new" "$prefix/$file"; } || fail "$prefix/$file cannot be written: set PREFIX to a directory of yours"
    done
}

main() {
    [ $# -le 1 ] || fail "give at most one directory"
    case ${1:-} in
    -*) fail "usage: [PREFIX=/usr/local] sh install.sh [DIRECTORY]" ;;
    esac
    directory=${1:-}
    [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "vmtax runs on x86-64 Linux alone: this is $(uname -s) $(uname -m)"
    for program in tar gzip sha256sum sed find; do need $program; done
    # In the source's own copy neither is filled in.
    case $directory$address in
    '' | @*) fail "no release of vmtax can be downloaded yet: build it from its source with \`make dist\`, then \`sh target/dist/install.sh target/dist\`" ;;
    esac
    units=1
    if [ -n "${PREFIX:-}" ]; then
        prefix=$PREFIX
    elif [ "$(id -u)" = 0 ]; then
        prefix=/usr/local
    else
        prefix=${HOME:?is not set: set PREFIX}/.local
        units=0
    fi

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' HUP INT TERM
    for file in "$archive" "$archive.sha256"; do
        if [ -n "$directory" ]; then copy "$file"; else download "$file"; fi
    done
    verify
    place

    # The installed program itself says its version.
    installed=$("$prefix/bin/vmtax" --version) || fail "$prefix/bin/vmtax does not run here"
    echo "$installed is installed: $prefix/bin/vmtax"
    case :$PATH: in
    *:"$prefix/bin":*) echo "Begin with \`vmtax doctor\`." ;;
    *) echo "$prefix/bin is not in PATH. Begin with \`$prefix/bin/vmtax doctor\`." ;;
    esac
}

# At the end: half a script does nothing.
main "$@"
