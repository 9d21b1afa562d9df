#!/bin/sh
# Writes the initramfs of a machine that reads images: busybox and the modules of the kernel in KERNEL, the program of the campaigns with its
# libraries, and the base images, whose names begin with numbers. If one has a root hash, also the programs that mount it.
#
# Usage: reader.sh KERNEL PROGRAM IMAGES INITRAMFS [PROGRAM]...
set -eu
kernel=$1
program=$2
images=$3
initramfs=$4
shift 4
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/mnt" "$root/run" "$root/tmp"
cp "$kernel/busybox" "$root/bin/busybox"
cp -r "$kernel/modules" "$root/modules"
# A program and its shared libraries. One for another processor is static and stripped already.
add() {
    cp "$1" "$root/bin/$2"
    strip "$root/bin/$2" 2> /dev/null || true
    ldd "$1" 2> /dev/null | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\).*/\1/p' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}
add "$program" campaigns
if [ -n "$(find "$images" -name "*.roothash")" ]; then
    for more; do
        add "$more" "$(basename "$more")"
    done
fi
cp -r "$images" "$root/images"
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
(cd "$root" && find . | cpio --quiet -o -H newc) > "$initramfs"
