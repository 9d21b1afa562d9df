#!/bin/sh
# Installs the package of ferofs into a new Debian, uses it there as a user would, and removes it. Needs root.
#
# Usage: run.sh PACKAGE DIR MIRROR. DIR keeps the new Debian for the next run; nothing changes it, because a file system in memory is laid
# over it. MIRROR is a mirror of Debian.
set -eu
package=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
mirror=$3
mkdir -p "$2"
dir=$(realpath "$2")
base=$dir/debian

# The packages with which ferofs must not clash wait in the new Debian, so that the test itself needs no network.
if [ ! -e "$dir/complete" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=fuse3,man-db,mount stable "$base" "$mirror"
    cp /etc/resolv.conf "$base/etc/resolv.conf"
    chroot "$base" sh -c 'apt-get update && apt-get install --yes --download-only erofs-utils erofsfuse'
    : > "$dir/complete"
fi

# All mounts are in a namespace of their own: the end of the test removes them.
export package here base
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
    cp "$package" "$root/tmp/test/ferofs.deb"
    cp "$here/inside.sh" "$root/tmp/test/"
    chmod 1777 "$root/tmp"
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
        sh /tmp/test/inside.sh
'
