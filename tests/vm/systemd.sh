#!/bin/sh
# Boots a Debian with systemd as the first process in a virtual machine, and reads images through automount points of fstab: the mount that
# systemd starts for the first access must not touch its own directory, or it waits for itself. Then builds an image in services whose cgroup (v2)
# has little memory.
#
# Usage: systemd.sh FEROFS DIR MIRROR. DIR has the kernel that run.sh unpacked, and keeps the Debian for the next run.
set -eu
ferofs=$1
dir=$2
mirror=$3
base=$dir/debian
if [ ! -e "$dir/debian.complete" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=systemd-sysv,fuse3,kmod,mount stable "$base" "$mirror"
    touch "$dir/debian.complete"
fi
version=$(ls "$dir/kernel/lib/modules")
root=$dir/systemd-root
rm -rf "$root"
mkdir "$root"
(cd "$base" && tar -c --exclude=./usr/share/doc --exclude=./usr/share/locale --exclude=./usr/share/man --exclude=./var/cache \
    --exclude=./var/lib/apt --exclude=./dev .) | tar -x -C "$root"
mkdir -p "$root/dev" "$root/auto"
for module in loop erofs fuse autofs4; do
    modprobe --dirname "$dir/kernel" --set-version "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | while read -r file; do
    to=$root/usr/lib/modules/$version/${file#*"/lib/modules/$version/"}
    mkdir -p "$(dirname "$to")"
    cp "$file" "$to"
done
cp "$dir/kernel/lib/modules/$version"/modules.builtin* "$dir/kernel/lib/modules/$version/modules.order" "$root/usr/lib/modules/$version/"
depmod -b "$root" "$version"

cp "$ferofs" "$root/usr/bin/ferofs"
ln -s ../bin/ferofs "$root/usr/sbin/mount.erofs"
ln -s ../bin/ferofs "$root/usr/sbin/mount.fuse.ferofs"
rm -rf "$dir/source" && mkdir "$dir/source"
seq 1000000 > "$dir/source/numbers"
"$ferofs" build --quiet -z lz4 "$dir/source" "$root/srv/image.erofs"
(cd "$dir/source" && sha256sum numbers) > "$root/srv/sums"
cp -a "$dir/source" "$root/srv/source"

: > "$root/etc/fstab"
types="erofs erofs.ferofs fuse.ferofs fuse"
for type in $types; do
    what=/srv/image.erofs
    [ "$type" != fuse ] || what=ferofs\#/srv/image.erofs
    mkdir "$root/auto/$type"
    echo "$what /auto/$type $type ro,x-systemd.automount,x-systemd.mount-timeout=90 0 0" >> "$root/etc/fstab"
done
limits="60 400"
for limit in $limits; do
    cat > "$root/etc/systemd/system/limited$limit.service" << END
[Service]
Type=oneshot
MemoryMax=${limit}M
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'ferofs build --quiet --preset small /srv/source /run/limited$limit.erofs 2> /run/limited$limit'
END
done
cat > "$root/etc/systemd/system/test.service" << 'END'
[Unit]
After=local-fs.target
Requires=local-fs.target
[Service]
Type=oneshot
ExecStart=/bin/sh /test.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
cat > "$root/test.sh" << END
passed=yes
for type in $types; do
    if findmnt --noheadings --output FSTYPE "/auto/\$type" | grep -vqx autofs; then
        echo "FAILED \$type: mounted before the first access"; passed=
    elif (cd "/auto/\$type" && timeout 120 sha256sum --quiet --check /srv/sums); then
        echo "passed \$type: \$(findmnt --noheadings --output FSTYPE "/auto/\$type" | tail -n 1)"
    else
        echo "FAILED \$type"; systemctl status --no-pager "auto-*.mount"; passed=
    fi
done
for limit in $limits; do
    expected=0
    if [ \$limit = 60 ]; then expected=8; fi
    systemctl start limited\$limit
    status=\$(systemctl show --property ExecMainStatus --value limited\$limit)
    if [ "\$status" = \$expected ] && { [ \$status = 0 ] || grep "out of memory: " /run/limited\$limit; }; then
        echo "passed \$limit MiB"
    else
        echo "FAILED \$limit MiB: \$status, \$(cat /run/limited\$limit)"; passed=
    fi
done
[ -z "\$passed" ] || echo "ALL PASSED"
systemctl poweroff --force --force
END
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 > "$dir/systemd-initrd"

start=$(date +%s)
timeout 900 qemu-system-x86_64 -machine q35,accel="${VM_ACCELERATOR:-tcg}" -cpu max -m 2048 -nographic -no-reboot -nodefaults -serial stdio \
    -kernel "$dir/kernel/boot/vmlinuz-$version" -initrd "$dir/systemd-initrd" \
    -append "console=ttyS0 panic=-1 quiet rdinit=/sbin/init systemd.unit=test.service systemd.show_status=0" < /dev/null |
    tr -d '\r' | tee "$dir/systemd-log"
echo "virtual machine with systemd: $(($(date +%s) - start)) s, Linux $version"
grep -qx "ALL PASSED" "$dir/systemd-log"
