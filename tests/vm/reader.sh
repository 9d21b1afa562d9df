#!/bin/sh
# Writes the initramfs of a machine that reads images: busybox, the modules of the kernel in KERNEL, the program of the campaigns with
# its libraries, and the base images, whose names are numbers.
#
# Usage: reader.sh KERNEL PROGRAM IMAGES INITRAMFS
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/mnt" "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
cp -r "$1/modules" "$root/modules"
cp "$2" "$root/bin/campaigns"
ldd "$2" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\).*/\1/p' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
strip "$root/bin/campaigns"
cp -r "$3" "$root/images"
cat > "$root/init" << 'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
while read -r module; do
    insmod "/modules/$module" || echo "cannot load $module"
done < /modules/order
campaigns guest > /dev/hvc0
poweroff -f
END
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) > "$4"
