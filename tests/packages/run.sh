#!/bin/sh
# Installs the packages of ferofs into a new Debian, uses them there as a user would, and removes them. Needs root.
#
# Usage: run.sh DIR MIRROR DEB RPM DEB RPM EMULATOR. DIR keeps the new Debian for the next run; nothing changes it, because a file system in memory
# is laid over it. MIRROR is a mirror of Debian. The second DEB and RPM are for another processor, whose instructions EMULATOR translates.
set -eu
here=$(dirname "$(realpath "$0")")
mkdir -p "$1"
dir=$(realpath "$1")
base=$dir/debian
mirror=$2
deb=$(realpath "$3")
rpm=$(realpath "$4")
other_deb=$(realpath "$5")
other_rpm=$(realpath "$6")
emulator=$(realpath "$7")

# Packages with which ferofs must not clash, and rpm, wait in the new Debian, so that the test itself needs no network.
waiting="erofs-utils erofsfuse rpm"
if [ "$(cat "$dir/complete" 2> /dev/null)" != "$waiting" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=fuse3,man-db,mount stable "$base" "$mirror"
    cp /etc/resolv.conf "$base/etc/resolv.conf"
    chroot "$base" sh -c "apt-get update && apt-get install --yes --download-only --no-install-recommends $waiting"
    echo "$waiting" > "$dir/complete"
fi

# All mounts are in a namespace of their own: the end of the test removes them.
export deb rpm other_deb other_rpm emulator here base
exec unshare --mount --propagation private sh -eu -c '
    memory=$base/mnt
    mount -t tmpfs tmpfs "$memory"
    mkdir "$memory/upper" "$memory/work" "$memory/root"
    root=$memory/root
    mount -t overlay -o "lowerdir=$base,upperdir=$memory/upper,workdir=$memory/work" overlay "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    # Where /dev/fuse is for root only, as in containers, another user could not mount.
    mknod -m 666 "$memory/fuse" c 10 229
    mount --bind "$memory/fuse" "$root/dev/fuse"
    # Installed systems have it; debootstrap does not make it.
    ln -sf ../proc/self/mounts "$root/etc/mtab"
    mount -t tmpfs tmpfs "$root/tmp"
    mkdir "$root/tmp/test"
    cp "$deb" "$root/tmp/test/ferofs.deb"
    cp "$rpm" "$root/tmp/test/ferofs.rpm"
    cp "$other_deb" "$root/tmp/test/other.deb"
    cp "$other_rpm" "$root/tmp/test/other.rpm"
    cp "$emulator" "$root/tmp/test/emulator"
    cp "$here/inside.sh" "$root/tmp/test/"
    chmod 1777 "$root/tmp"
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        sh /tmp/test/inside.sh
'
