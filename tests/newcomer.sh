#!/bin/sh
# Does what a newcomer does, in a bare Debian: both commands of the README, a new crate that depends on this one, and every command of
# the README and the book.
#
#   tests/newcomer.sh [--tests] [--keep] [ROOT]
#
# ROOT is a folder that holds a bare Debian 12 or Ubuntu 24.04. Without it one is made by mmdebstrap or debootstrap, and removed afterwards
# unless --keep is given. --tests runs the README's second command, the whole test suite, too. Needs root (it uses chroot) and the network;
# http_proxy, https_proxy, no_proxy and a bundle of certificates that SSL_CERT_FILE names are handed on.
set -eu
say() { echo "== $*"; }
die() { echo "newcomer: $*" >&2; exit 1; }

suite=bookworm
# The Debian archive that this host installs from; NEWCOMER_MIRROR names another, without the last part `debian`.
mirror=${NEWCOMER_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sed -n 's#/debian/*$##p' | head -n 1)}
tests="" keep="" root=""
for word in "$@"; do
    case $word in
        --tests) tests=1 ;;
        --keep) keep=1 ;;
        -*) die "unknown option $word" ;;
        *) root=$word ;;
    esac
done
[ "$(id -u)" = 0 ] || die "chroot needs root: sudo tests/newcomer.sh"
tree=$(cd "$(dirname "$0")/.." && pwd)

made=""
clean() {
    for folder in dev/pts dev proc; do umount "$root/$folder" 2>/dev/null || true; done
    if [ -n "$made" ] && [ -z "$keep" ]; then rm -rf --one-file-system "$root"; fi
}
if [ -z "$root" ]; then
    [ -n "$mirror" ] || die "no Debian archive is known here: set NEWCOMER_MIRROR=http://HOST, or name a folder with a bare Debian"
    root=$(mktemp -d "${TMPDIR:-/tmp}/newcomer.XXXXXX")
    made=1
    trap clean EXIT
    say "a bare Debian $suite in $root"
    if command -v mmdebstrap >/dev/null 2>&1; then
        mmdebstrap --quiet --variant=minbase "$suite" "$root" "$mirror/debian" >"$root.log" 2>&1
    elif command -v debootstrap >/dev/null 2>&1; then
        debootstrap --variant=minbase "$suite" "$root" "$mirror/debian" >"$root.log" 2>&1
    else
        die "neither mmdebstrap nor debootstrap is here: apt-get install debootstrap, or name a folder with a bare Debian"
    fi || { tail -n 20 "$root.log" >&2; die "no bare Debian could be made"; }
    rm -f "$root.log"
    # As an installed Debian and its images have it: with the updates of security, where rustc-web is.
    cat >"$root/etc/apt/sources.list" <<END
deb $mirror/debian $suite main
deb $mirror/debian $suite-updates main
deb $mirror/debian-security $suite-security main
END
fi
trap clean EXIT
[ -x "$root/bin/sh" ] || die "$root holds no system"
mount -t proc proc "$root/proc" 2>/dev/null || say "no /proc could be mounted; going on without"
mount --bind /dev "$root/dev" 2>/dev/null || say "no /dev could be mounted; going on without"
mount --bind /dev/pts "$root/dev/pts" 2>/dev/null || say "no /dev/pts could be mounted; tests that need a terminal will fail"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# The tree as git has it, with what is not committed; nothing that was built.
home=$root/newcomer
rm -rf "$home" && mkdir -p "$home/warploom"
(cd "$tree" && git -c safe.directory="$tree" ls-files -z --cached --others --exclude-standard |
    xargs -0 sh -c 'for f; do if [ -e "$f" ]; then printf "%s\0" "$f"; fi; done' sh |
    tar -c --null -T -) | tar -x -C "$home/warploom"

certificates=""
if [ -n "${SSL_CERT_FILE-}" ] && [ -f "$SSL_CERT_FILE" ]; then
    cp "$SSL_CERT_FILE" "$home/certificates.pem"
    certificates=/newcomer/certificates.pem
fi

# Runs a line of shell in a folder of the bare system, with nothing of this host's environment.
inside() {
    folder=$1
    shift
    chroot "$root" /usr/bin/env -i HOME=/newcomer PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
        ${certificates:+SSL_CERT_FILE="$certificates" CARGO_HTTP_CAINFO="$certificates" PIP_CERT="$certificates"} \
        /bin/sh -c "cd $folder && $*"
}
seconds() { date +%s; }

start=$(seconds)
commands=$(sed -n '/^## Two commands/,/^## /p' "$tree/README.md" | grep '^\.ci/setup')
[ "$(echo "$commands" | wc -l)" = 2 ] || die "the README does not have two commands"
echo "$commands" | while IFS= read -r command; do
    case $command in
        *test*) [ -n "$tests" ] || { say "left out without --tests: $command"; continue; } ;;
    esac
    begin=$(seconds)
    say "$command"
    inside /newcomer/warploom "$command" </dev/null
    say "done in $(($(seconds) - begin)) s"
done

say "a new crate"
inside /newcomer "cargo new --quiet --lib --vcs none mine && cd mine && cargo add --quiet --path ../warploom"
cat >"$home/mine/src/lib.rs" <<'END'
#[test]
fn a_product_is_compiled_and_simulated() -> warploom::Result<()> {
    use warploom::{Array, DType, Gemm, compile_gemm, gemm, simulate};

    let gemm = Gemm::new(64, 32, 16).of(DType::F32);
    let kernels = compile_gemm(&gemm::recommend(&gemm, &gemm.default_target())?)?;
    let (ones, twos) = (Array::from_fn(DType::F32, &[64, 16], |_| 1.0)?, Array::from_fn(DType::F32, &[16, 32], |_| 2.0)?);
    let mut arrays = [ones, twos, Array::zeros(DType::F32, &[64, 32])?];
    simulate(&kernels, &mut arrays)?;
    assert!((0..64 * 32).all(|i| arrays[2].get(i) == 32.0));
    Ok(())
}
END
begin=$(seconds)
inside /newcomer/mine "cargo test --quiet" </dev/null
say "done in $(($(seconds) - begin)) s"

# Lines `$ warploom ..` of the console blocks; `# exit N` says how a command ends. None of them needs a GPU.
say "the commands of the README and the book"
list=$home/commands
(cd "$tree" && awk '
    FNR == 1 { shown = 0 }
    /^```/ { shown = ($0 == "```console") }
    shown && /^\$ warploom / { sub(/^\$ warploom /, ""); print FILENAME "\t" $0 }
' README.md $(git -c safe.directory="$tree" ls-files --cached --others --exclude-standard 'docs/src/*.md')) >"$list"
[ "$(wc -l <"$list")" -gt 50 ] || die "only $(wc -l <"$list") commands were found"
cat >"$home/commands.sh" <<'END'
failed=0
while IFS="	" read -r page command; do
    wanted=$(echo "$command" | sed -n 's/.*# exit \([0-9]*\)$/\1/p')
    command=$(echo "$command" | sed 's/ *# exit [0-9]*$//')
    status=0
    eval "target/release/warploom $command" >/tmp/said 2>&1 </dev/null || status=$?
    if [ "$status" != "${wanted:-0}" ]; then
        echo "$page: warploom $command ends with $status, not ${wanted:-0}:"
        tail -n 5 /tmp/said
        failed=$((failed + 1))
    fi
done </newcomer/commands
echo "$(wc -l </newcomer/commands) commands, $failed failed"
[ "$failed" = 0 ]
END
inside /newcomer/warploom "sh ../commands.sh"
say "all of it in $(($(seconds) - start)) s"
