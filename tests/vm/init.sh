#!/bin/busybox sh
# The first process of the virtual machine that run.sh starts.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/modules/$module" || echo "cannot load $module"
done < /modules/order

passed=0
failed=0
check() {
    name=$1
    shift
    if "$@" > /tmp/out 2>&1; then
        passed=$((passed + 1))
        echo "ok: $name"
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        cat /tmp/out
    fi
}
same() { (cd /mnt && sha256sum -c /sums); }
verified_by_kernel() { grep -q "^/dev/mapper/ferofs-[^ ]* /mnt erofs ro" /proc/mounts; }
unmount() { umount /mnt && sleep 1 && [ -z "$(ls /dev/mapper | grep -v control)" ]; }
fails() { ! "$@"; }
# Each file is right, or cannot be read.
right_or_error() {
    (cd /mnt && while read -r sum file; do
        found=$(sha256sum "$file" 2> /dev/null) || { echo "error: $file"; continue; }
        [ "${found%% *}" = "$sum" ] || exit 1
    done < /sums)
}
any_error() { (cd /mnt && ! cat numbers random sub/small > /dev/null); }

root=$(cat /roothash)
wrong=$(echo "$root" | tr 0123456789abcdef 123456789abcdef0)
check "mount with dm-verity" ferofs mount --kernel --verbose --roothash "$root" /image /mnt
check "the device is dm-verity's" verified_by_kernel
check "files are right" same
check "unmount removes the device" unmount
check "tree in another file" ferofs mount --kernel --roothash "$(cat /roothash2)" --hash-file /tree /image2 /mnt
check "files are right" same
check "unmount removes the device" unmount
check "without --kernel" ferofs mount --roothash "$root" /image /mnt
check "the device is dm-verity's" verified_by_kernel
check "unmount" unmount
check "a wrong root hash is refused" fails ferofs mount --kernel --roothash "$wrong" /image /mnt
check "no device is left" test -z "$(ls /dev/mapper | grep -v control)"
check "mount the damaged image" ferofs mount --kernel --roothash "$root" /damaged /mnt
check "damaged: right or an error" right_or_error
check "damaged: one file has an error" any_error
check "unmount" unmount
check "veritysetup verifies our tree" veritysetup verify /image /image "$root" \
    "--hash-offset=$(ferofs verity show --json /image | sed 's/.*"hash_offset":\([0-9]*\).*/\1/')"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && echo "ALL PASSED"
poweroff -f
