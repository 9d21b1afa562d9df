#!/bin/sh
# Makes types.erofs again, as root, with the mkfs.erofs in PATH. erofs-utils 1.9.4 made the one that is kept.
set -eu
here=$(realpath "$(dirname "$0")")
cd "$(mktemp -d)"
mkdir full
for len in 206 255; do touch "full/$(printf "%${len}s" | tr ' ' n)"; done
touch full/p
echo regular > regular
ln -s regular symlink
mkfifo fifo
mknod char c 4095 77
mknod block b 8 1048575
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
for name in regular fifo full; do setfattr -n trusted.three -v 'the same in three inodes' $name; done
for name in regular fifo; do setfattr -n trusted.two -v 'in two' $name; done
setfattr -n user.own -v own regular
chown -hR 1000:100 .
chown 70000:80000 char
chmod 755 . full
chmod 640 regular fifo
chmod 4755 socket
mkfs.erofs --quiet -b512 -x1 -T1000000000 -U00000000-0000-4000-8000-000000000000 "$here/types.erofs" .
