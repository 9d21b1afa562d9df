#!/bin/sh
# What tests/packages/run.sh does in the new Debian.
set -eu
cd /tmp/test
names="mkfs.erofs fsck.erofs dump.erofs erofsfuse mount.erofs"

step() { printf '== %s\n' "$1"; }
fail() { printf 'FAILED: %s\n' "$1" >&2; exit 1; }
# Files of the system, without what package managers keep about their own work.
list_files() {
    find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /run -o -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/cache -o -path /var/log \) -prune -o -print | sort
}
# Whether `mkfs.erofs` is ours.
is_ours() { mkfs.erofs -V 2>&1 | grep -q '^ferofs '; }

step "install"
list_files > before
apt-get install --yes --no-install-recommends ./ferofs.deb > log 2>&1 || { cat log; fail "apt-get install"; }
dpkg --verify ferofs | grep . && fail "dpkg --verify: files differ"
[ -z "$(dpkg-query -W -f '${Depends}' ferofs)" ] || fail "a static program depends on nothing"

step "build, check, list, extract"
ferofs build --quiet /usr/share/perl5 /tmp/test/perl.erofs
ferofs check perl.erofs
ferofs ls perl.erofs / > /dev/null
ferofs extract perl.erofs copy
diff -r --no-dereference /usr/share/perl5 copy

step "mount with the kernel"
mkdir kernel fuse user
ferofs mount perl.erofs kernel
grep ' /tmp/test/kernel erofs ' /proc/mounts > /dev/null || fail "the kernel did not mount"
diff -r --no-dereference /usr/share/perl5 kernel
ferofs umount kernel

step "mount with FUSE, as root and as another user"
ferofs mount --fuse perl.erofs fuse
diff -r --no-dereference /usr/share/perl5 fuse
ferofs umount fuse
chown nobody user
setpriv --reuid nobody --regid nogroup --clear-groups ferofs mount perl.erofs user
setpriv --reuid nobody --regid nogroup --clear-groups diff -r --no-dereference /usr/share/perl5 user
setpriv --reuid nobody --regid nogroup --clear-groups ferofs umount user

step "names of erofs-utils"
is_ours || fail "mkfs.erofs is not ours"
mkfs.erofs --quiet -zlz4 names.erofs /usr/share/perl5
fsck.erofs names.erofs > /dev/null
dump.erofs -s names.erofs > /dev/null
# mount(8) starts /sbin/mount.erofs.
[ "$(readlink -f /sbin/mount.erofs)" = /usr/bin/ferofs ] || fail "/sbin/mount.erofs"
mount -t erofs names.erofs kernel
diff -r --no-dereference /usr/share/perl5 kernel
umount kernel
mount -t erofs.fuse names.erofs kernel
diff -r --no-dereference /usr/share/perl5 kernel
umount kernel
erofsfuse names.erofs fuse
diff -r --no-dereference /usr/share/perl5 fuse
umount fuse

step "manual and completions"
mandb --quiet
for page in ferofs ferofs-build ferofs-patch-create $names; do
    man -w "$page" > /dev/null || fail "no manual page $page"
    LC_ALL=C man "$page" 2> problems | grep -qi erofs || fail "the manual page $page is empty"
    [ ! -s problems ] || { cat problems; fail "the manual page $page"; }
done
bash -c '. /usr/share/bash-completion/completions/ferofs && complete -p ferofs' > /dev/null
for file in /usr/share/zsh/vendor-completions/_ferofs /usr/share/fish/vendor_completions.d/ferofs.fish; do
    grep -q extract "$file" || fail "$file"
done
zcat /usr/share/doc/ferofs/licences.gz | grep -q zstd-sys || fail "the licences"

step "erofs-utils beside ferofs"
apt-get install --yes --no-download --no-install-recommends erofs-utils erofsfuse > log 2>&1 || { cat log; fail "installing erofs-utils"; }
is_ours && fail "erofs-utils does not have its own mkfs.erofs"
dpkg --verify erofs-utils | grep . && fail "erofs-utils: files differ"
dpkg --install ferofs.deb > log 2>&1 || { cat log; fail "installing ferofs again"; }
is_ours && fail "ferofs replaced the mkfs.erofs of erofs-utils"
apt-get purge --yes ferofs > log 2>&1 || { cat log; fail "removing ferofs"; }
mkfs.erofs -V > /dev/null 2>&1 || fail "ferofs took the mkfs.erofs of erofs-utils away"
dpkg --install ferofs.deb > log 2>&1 || { cat log; fail "installing ferofs after erofs-utils"; }
is_ours && fail "ferofs replaced the mkfs.erofs of erofs-utils"
apt-get purge --yes --auto-remove erofs-utils erofsfuse > log 2>&1 || { cat log; fail "removing erofs-utils"; }
is_ours || fail "mkfs.erofs did not come back after erofs-utils"

step "remove"
apt-get purge --yes ferofs > log 2>&1 || { cat log; fail "removing ferofs"; }
mandb --quiet
list_files > after
diff before after || fail "files are left"

# Builds, checks, lists and extracts with the program that the arguments start.
use() {
    rm -rf image.erofs copy
    "$@" build --quiet /usr/share/perl5 image.erofs
    "$@" check image.erofs
    "$@" ls image.erofs / > /dev/null
    "$@" extract image.erofs copy
    diff -r --no-dereference /usr/share/perl5 copy
}

step "the Debian package for another processor"
dpkg --add-architecture "$(dpkg-deb --field other.deb Architecture)"
dpkg --install other.deb > log 2>&1 || { cat log; fail "installing the package for another processor"; }
dpkg --verify ferofs | grep . && fail "dpkg --verify: files differ"
use ./emulator /usr/bin/ferofs
./emulator -0 mkfs.erofs /usr/bin/ferofs -V | grep -q '^ferofs ' || fail "mkfs.erofs of the package for another processor"
dpkg --purge ferofs > log 2>&1 || { cat log; fail "removing the package for another processor"; }

# They get a root directory of their own, as Debian does not know what they contain.
step "the rpm packages"
apt-get install --yes --no-download --no-install-recommends rpm > log 2>&1 || { cat log; fail "installing rpm"; }
# The rpm of Debian 12 installs nothing without this option, and that of Debian 13 does not know it.
force=--force-debian
rpm --force-debian --version > log 2>&1 || force=
for file in ferofs.rpm other.rpm; do
    root=/tmp/test/root
    rpm -qpl "$file" > list
    for path in /usr/bin/ferofs /usr/lib/ferofs/mkfs.erofs /usr/share/man/man1/ferofs-build.1.gz; do
        grep -qx "$path" list || fail "$file has no $path"
    done
    mkdir "$root"
    into_root="rpm --root $root --dbpath /var/lib/rpm"
    $into_root --initdb
    $into_root $force --ignorearch --install "$file"
    $into_root --verify ferofs || fail "$file: rpm --verify: files differ"
    case $file in
    ferofs.rpm)
        use "$root/usr/bin/ferofs"
        "$root/usr/lib/ferofs/mkfs.erofs" -V | grep -q '^ferofs ' || fail "mkfs.erofs of $file"
        ;;
    *) use ./emulator "$root/usr/bin/ferofs" ;;
    esac
    $into_root $force --erase ferofs
    find "$root" -name '*ferofs*' | grep . && fail "$file: files are left"
    rm -rf "$root"
done
echo "the packages work"
