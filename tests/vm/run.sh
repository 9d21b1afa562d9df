#!/bin/sh
# Mounts a sealed image with dm-verity in a virtual machine, changes a byte of it, and checks that Linux and our reader return an error and
# no wrong byte. For machines whose kernel has no dm-verity: QEMU emulates a processor, with Debian's kernel for virtual machines.
#
# Usage: run.sh FEROFS DIR. DIR keeps the kernel for the next run.
set -eu
ferofs=$1
dir=$2
here=$(dirname "$0")
mkdir -p "$dir"

# The kernel is not installed on this machine, only unpacked.
if [ ! -d "$dir/kernel/boot" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | grep '^linux-image-')
    rm -rf "$dir/download" && mkdir -p "$dir/download"
    (cd "$dir/download" && apt-get download "$package")
    dpkg -x "$dir"/download/*.deb "$dir/kernel"
fi
version=$(ls "$dir/kernel/lib/modules")
modules=$dir/kernel/lib/modules/$version
[ -e "$modules/modules.dep" ] || depmod -b "$dir/kernel" "$version"

root=$dir/root
rm -rf "$root"
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/mnt" "$root/run" "$root/tmp" "$root/modules"
cp "$(command -v busybox)" "$root/bin/busybox"

# A program and its shared libraries.
add_program() {
    cp "$1" "$root/bin/"
    ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\).*/\1/p' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}
add_program "$ferofs"
add_program "$(command -v veritysetup || echo /usr/sbin/veritysetup)"

# The modules in the order in which they must be loaded.
: > "$root/modules/order"
for module in loop dm-verity erofs; do
    modprobe --dirname "$dir/kernel" --set-version "$version" --show-depends "$module" |
        sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
        name=$(basename "$file")
        grep -qx "$name" "$root/modules/order" && continue
        case $name in
            *.xz) xz -dc "$file" > "$root/modules/${name%.xz}"; name=${name%.xz} ;;
            *) cp "$file" "$root/modules/" ;;
        esac
        echo "$name" >> "$root/modules/order"
    done
done

# Two images: one with its tree, one with the tree in another file. The first is also damaged in one block of each file.
rm -rf "$dir/source" && mkdir -p "$dir/source/sub"
seq 200000 > "$dir/source/numbers"
head -c 3000000 /dev/urandom > "$dir/source/random"
echo small > "$dir/source/sub/small"
(cd "$dir/source" && sha256sum numbers random sub/small) > "$root/sums"
"$ferofs" build --quiet -z lz4 --verity --roothash-file "$root/roothash" "$dir/source" "$root/image" > /dev/null
"$ferofs" build --quiet -z lz4 --verity="$root/tree" --roothash-file "$root/roothash2" "$dir/source" "$root/image2" > /dev/null
cp "$root/image" "$root/damaged"
# The middle of the image is in the data of a file.
middle=$(($(stat -c %s "$root/image2") / 2))
printf 'damage' | dd of="$root/damaged" bs=1 seek="$middle" conv=notrunc status=none
cp "$here/init.sh" "$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 > "$dir/initrd"

# Emulation works everywhere; nested virtualization often does not.
accelerator=${VM_ACCELERATOR:-tcg}
start=$(date +%s)
timeout 900 qemu-system-x86_64 -machine q35,accel=$accelerator -cpu max -m 768 -nographic -no-reboot -nodefaults -serial stdio \
    -kernel "$dir/kernel/boot/vmlinuz-$version" -initrd "$dir/initrd" \
    -append "console=ttyS0 panic=-1 quiet" < /dev/null | tr -d '\r' | tee "$dir/log"
echo "virtual machine: $(($(date +%s) - start)) s, Linux $version, $accelerator"
grep -qx "ALL PASSED" "$dir/log"
