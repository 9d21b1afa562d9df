#!/bin/sh
# Unpacks Debian's newest kernel of a release, such as 6.18, or the `newest` of all, from any suite that has it, and busybox for the same
# processor. The machine's own lists of packages stay as they are.
#
# Usage: DEBIAN_MIRROR=URI kernel.sh RELEASE PACKAGES DIR. PACKAGES is the end of the packages' names, such as cloud-amd64. Afterwards DIR has vmlinuz, busybox,
# the number of the release in `release` and, in modules, the modules with a file `order`.
set -eu
release=$1
kind=$2
dir=$3
[ -e "$dir/release" ] && exit
fail() {
    echo "Linux $release ($kind): $1" >&2
    exit 1
}
case $kind in
    *arm64*) processor=arm64 ;;
    *) processor=amd64 ;;
esac
# Other releases share the lists.
lists=$(dirname "$dir")/lists-$processor
rm -rf "$dir" && mkdir -p "$lists/partial" "$dir/apt/cache/archives/partial" "$dir/packages" "$dir/tree/usr/lib"
mirror=${DEBIAN_MIRROR:?names the mirror of Debian that has the kernels}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in experimental sid trixie-backports trixie bookworm bullseye; do
    echo "deb [signed-by=$keys] $mirror $suite main"
done > "$dir/apt/sources.list"
: > "$dir/apt/status"
cat > "$dir/apt/conf" << END
Dir::State::lists "$lists";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Architecture "$processor";
APT::Architectures { "$processor"; };
APT::Sandbox::User "root";
END
export APT_CONFIG="$dir/apt/conf"
if [ -z "$(find "$lists" -name updated -mmin -60)" ]; then
    apt-get update > "$dir/apt/log" 2>&1 || fail "$(tail -n 3 "$dir/apt/log")"
    touch "$lists/updated"
fi
download() { (cd "$dir/packages" && apt-get download "$@" >> "$dir/apt/log" 2>&1); }
case $release in
    newest) number='[0-9]' ;;
    *) number="$release[.+-]" ;;
esac
pattern="^linux-\(image\|binary\|modules\)-\($number[^ ]*-$kind\)"
found=
# The lists name versions that the mirror no longer has.
for version in $(apt-cache pkgnames linux- | sed -n "s/$pattern\$/\2/p" | sort -Vru); do
    if download $(apt-cache pkgnames linux- | grep -x "linux-\(image\|binary\|modules\)-$version"); then
        found=$version
        break
    fi
done
[ -n "$found" ] || fail "Debian has no such kernel"
download busybox-static || fail "$(tail -n 3 "$dir/apt/log")"
# Newer packages have everything below /usr.
ln -s usr/lib "$dir/tree/lib"
for package in "$dir"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$dir/tree" --keep-directory-symlink
done
version=$(ls "$dir/tree/lib/modules")
depmod -b "$dir/tree" "$version" 2> "$dir/apt/log"
cp "$(find "$dir/tree" -name "vmlinuz*" -type f)" "$dir/vmlinuz"
cp "$(find "$dir/tree" -path "*bin/busybox" -type f)" "$dir/busybox"
# A kernel for EFI that unpacks itself, which QEMU does not know: its header says where the packed kernel is.
field() { od -An -t u4 -j "$1" -N 4 "$dir/vmlinuz" | tr -d ' '; }
if [ "$(head -c 8 "$dir/vmlinuz" | tail -c 4)" = zimg ]; then
    tail -c "+$(($(field 8) + 1))" "$dir/vmlinuz" | head -c "$(field 12)" > "$dir/packed"
    case $(head -c 28 "$dir/vmlinuz" | tail -c 4) in
        gzip) unpack=gzip ;;
        zstd) unpack=zstd ;;
        *) fail "the kernel is packed in an unknown way" ;;
    esac
    "$unpack" -dc < "$dir/packed" > "$dir/vmlinuz"
    rm "$dir/packed"
fi
mkdir -p "$dir/modules"
# Some kernels have the console as a module; others have it built in, and then it has none.
for module in virtio_pci virtio_console loop dm-verity erofs; do
    modprobe --dirname "$dir/tree" --set-version "$version" --show-depends "$module" 2> /dev/null |
        sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
        name=$(basename "$file")
        grep -qx "${name%.xz}" "$dir/modules/list" 2> /dev/null && continue
        case $name in
            *.xz) xz -dc "$file" > "$dir/modules/${name%.xz}" ;;
            *) cp "$file" "$dir/modules/" ;;
        esac
        echo "${name%.xz}" >> "$dir/modules/list"
    done
done
grep -qx erofs.ko "$dir/modules/list" || fail "it has no EROFS"
mv "$dir/modules/list" "$dir/modules/order"
rm -rf "$dir/tree" "$dir/packages" "$dir/apt"
echo "$version" | sed 's/^\([0-9]*\.[0-9]*\).*/\1/' > "$dir/release"
echo "Linux $version"
