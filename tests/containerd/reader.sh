#!/bin/bash
# Lets go-erofs, the reader in containerd 2.4, read images that ferofs builds, patches, squashes and makes of archives: reader.sh FEROFS READER.
#
# READER is the program in the folder `reader`. go-erofs reads a whole block from each shared attribute on.
set -euo pipefail

ferofs=$(realpath "${1:?the ferofs to test}")
reader=$(realpath "${2:?the program in the folder reader}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME FILES ATTRIBUTES: a tree whose files have attributes in common: all of them, and two of them.
make_tree() {
    python3 - "$work/$1" "$2" "$3" <<'EOF'
import os, sys
root, files, attributes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(files):
    folder = f"{root}/d{number % 3}"
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/{number}"
    with open(path, "w") as file:
        file.write(f"{number} " * number * 40)
    for attribute in range(attributes):
        os.setxattr(path, f"user.of.all-{attribute}", b"x" * (60 + attribute))
    if attributes > 1:
        os.setxattr(path, f"user.of.two-{number // 2}", b"y" * 60)
EOF
}

failed=0
read_with_go() {
    "$reader" "$work/$1" "$work/$2" || { echo "FAILED: $3"; failed=1; }
}

count=0
for size in "2 1" "2 2" "9 3" "40 2" "300 1" "300 2" "5 25"; do
    rm -rf "$work"/*
    read -r files attributes <<<"$size"
    make_tree tree "$files" "$attributes"
    make_tree next $((files + 2)) "$attributes"
    tar --xattrs --format=posix -C "$work/tree" -cf "$work/tree.tar" .
    for options in "" "-b 512" "-b 1K" "-b 16K" "--chunk-size 4K" "-x 1" "--xattr-prefix user.of." "--inode-digests" "--for-updates"; do
        rm -f "$work"/*.erofs
        # shellcheck disable=SC2086 # Options are words.
        build() { "$ferofs" build -z none --quiet $options "$@" >/dev/null; }
        case $options in --chunk-size*) build() { "$ferofs" build --quiet $options "$@" >/dev/null; } ;; esac
        build "$work/tree" "$work/image.erofs"
        read_with_go image.erofs tree "built $size $options"
        build "$work/tree.tar" "$work/tar.erofs"
        read_with_go tar.erofs tree "archive $size $options"
        build "$work/image.erofs" "$work/again.erofs"
        read_with_go again.erofs tree "image of an image $size $options"
        "$ferofs" patch create -q "$work/image.erofs" "$work/next" -o "$work/patch" >/dev/null
        "$ferofs" patch apply -q "$work/image.erofs" "$work/patch"
        read_with_go image.erofs next "patched $size $options"
        "$ferofs" patch squash -q "$work/image.erofs" "$work/squashed.erofs"
        read_with_go squashed.erofs next "squashed $size $options"
        "$ferofs" patch rollback -q "$work/image.erofs"
        read_with_go image.erofs tree "rolled back $size $options"
        count=$((count + 6))
    done
done
[ $failed = 0 ] || exit 1
echo "ok: go-erofs reads $count images"
