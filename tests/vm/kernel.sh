#!/bin/sh
# Unpacks Debian's newest kernel for virtual machines of a release, such as 6.18, from any suite that has one. The machine's own lists of
# packages stay as they are.
#
# Usage: kernel.sh RELEASE DIR. Afterwards DIR has vmlinuz and, in modules, the modules with a file `order`.
set -eu
release=$1
dir=$2
[ -e "$dir/modules/order" ] && exit
# Other releases share the lists.
lists=$(dirname "$dir")/lists
rm -rf "$dir" && mkdir -p "$lists/partial" "$dir/apt/cache/archives/partial" "$dir/packages" "$dir/tree/usr/lib"
mirror=$(apt-get indextargets --format '$(SITE)' | grep -m 1 debian)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for suite in experimental sid trixie-backports trixie bookworm bullseye; do
    echo "deb [signed-by=$keys] $mirror $suite main"
done > "$dir/apt/sources.list"
cat > "$dir/apt/conf" << END
Dir::State::lists "$lists";
Dir::Cache "$dir/apt/cache";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
END
export APT_CONFIG="$dir/apt/conf"
if [ -z "$(find "$lists" -name updated -mmin -60)" ]; then
    apt-get update > "$dir/apt/log" 2>&1
    touch "$lists/updated"
fi
pattern="^linux-\(image\|binary\|modules\)-\($release\.[^ ]*-cloud-amd64\)"
# The lists name versions that the mirror no longer has.
for version in $(apt-cache pkgnames linux- | sed -n "s/$pattern\$/\2/p" | sort -Vru); do
    packages=$(apt-cache pkgnames linux- | grep -x "linux-\(image\|binary\|modules\)-$version")
    if (cd "$dir/packages" && apt-get download $packages >> "$dir/apt/log" 2>&1); then
        break
    fi
done
# Newer packages have everything below /usr.
ln -s usr/lib "$dir/tree/lib"
for package in "$dir"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$dir/tree" --keep-directory-symlink
done
version=$(ls "$dir/tree/lib/modules")
depmod -b "$dir/tree" "$version" 2> "$dir/apt/log"
cp "$(find "$dir/tree" -name "vmlinuz*" -type f)" "$dir/vmlinuz"
mkdir -p "$dir/modules"
# Some kernels have the console as a module.
for module in virtio_pci virtio_console loop erofs; do
    modprobe --dirname "$dir/tree" --set-version "$version" --show-depends "$module" |
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
mv "$dir/modules/list" "$dir/modules/order"
rm -rf "$dir/tree" "$dir/packages" "$dir/apt"
echo "Linux $version"
