#!/bin/bash
# Runs a container from a registry through containerd's EROFS snapshotter and differ, with ferofs in the place of
# erofs-utils: run.sh FEROFS [reader|default|tar-index|merged|pushed|converted|layers|difference]...
#
# - reader: containerd's own reader, go-erofs, reads images of many kinds (reader.sh);
# - default: containerd makes an image of each layer with `mkfs.erofs --tar=f`;
# - tar-index: it makes an index with `mkfs.erofs --tar=i`, and puts the layer behind it;
# - merged: as default; then `mkfs.erofs` makes one image that points to all layers, which containerd mounts in their
#   place (it does not make that image itself);
# - pushed: `ferofs push` has stored an EROFS image, which containerd mounts as it is;
# - converted: `ferofs convert` has stored one EROFS image for the layers of the same image;
# - layers: `ferofs convert --layers` has stored an EROFS image for each layer;
# - difference: `ferofs push --base` has stored a layer with the difference from another tree.
#
# From `pushed` on containerd makes no images. It wants mkfs.erofs anyway: its differ is off without it.
#
# Wants root, EROFS in the kernel, Go and Debian's packages docker-registry, skopeo, runc and busybox-static. containerd
# 2.x is built by `go install` into $CONTAINERD_BIN (target/containerd) unless it is there. All connections are to
# 127.0.0.1. containerd mounts EROFS with mount(2), and not by mount.erofs, which this script calls itself.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
ferofs=$(realpath "${1:?the ferofs to test}")
shift
modes=("$@")
[ $# -gt 0 ] || modes=(reader default tar-index merged pushed converted layers difference)
bin=${CONTAINERD_BIN:-$here/../../target/containerd}
version=${CONTAINERD_VERSION:-latest}
work=$(mktemp -d)
pids=()

finish() {
    code=$?
    if [ $code -ne 0 ]; then
        for log in "$work"/*.log; do
            echo "--- the end of $log"
            tail -n 8 "$log" | cut -c 1-300
        done
    fi
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null && wait "$pid" || true
    done
    # Mounts that a failure left, the innermost first.
    awk -v dir="$work/" 'index($2, dir) == 1 { print $2 }' /proc/mounts | tac | while read -r mount; do
        umount -l "$mount" || true
    done
    rm -rf "$work"
    exit $code
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Waits, 30 s at most, until a command succeeds.
await() {
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    fail "not ready after 30 s: $*"
}

listens() {
    (: </dev/tcp/127.0.0.1/"$1") 2>/dev/null
}

if [ "${modes[0]}" = reader ]; then
    mkdir -p "$bin"
    (cd "$here/reader" && GOFLAGS=-p=1 nice go build -o "$(realpath "$bin")/reader" .)
    "$here/reader.sh" "$ferofs" "$bin/reader"
    modes=("${modes[@]:1}")
    [ ${#modes[@]} -gt 0 ] || exit 0
fi
if ! [ -x "$bin/containerd" ]; then
    mkdir -p "$bin"
    for program in containerd ctr containerd-shim-runc-v2; do
        GOFLAGS=-p=1 GOBIN=$(realpath "$bin") nice go install \
            "github.com/containerd/containerd/v2/cmd/$program@$version"
    done
fi
links=$work/links
mkdir "$links"
"$ferofs" links "$links" >/dev/null
export PATH=$links:$(realpath "$bin"):/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ "$(readlink -f "$(command -v mkfs.erofs)")" = "$ferofs" ] || fail "another mkfs.erofs comes first"

port=$((20000 + $$ % 20000))
cat >"$work/registry.yml" <<EOF
version: 0.1
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: "127.0.0.1:$port" }
EOF
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
pids+=($!)
python3 "$here/image.py" /bin/busybox "$work/layout"
await listens "$port"
repository=127.0.0.1:$port/test
skopeo --insecure-policy copy --dest-tls-verify=false "oci:$work/layout:test" "docker://$repository:tar" >"$work/skopeo.log"
export HOME=$work
"$ferofs" build -z lz4 --verity --quiet "$work/layout" "$work/pushed.erofs" >/dev/null
"$ferofs" push "$work/pushed.erofs" "oci://$repository:pushed" >/dev/null
export FEROFS_CACHE_DIR=$work/cache
"$ferofs" convert "oci://$repository:tar" "oci://$repository:converted" >/dev/null
"$ferofs" convert --layers -z lz4 "oci://$repository:tar" "oci://$repository:layers" >/dev/null
"$ferofs" extract "$work/pushed.erofs" "$work/tree"
rm "$work/tree/data/kept" "$work"/tree/data/nnn*
echo first >"$work/tree/data/changed"
mkdir "$work/tree/data/removed" && echo x >"$work/tree/data/removed/x" && echo y >"$work/tree/data/old/y"
"$ferofs" build -z lz4 --quiet "$work/tree" "$work/base.erofs" >/dev/null
"$ferofs" push "$work/base.erofs" "oci://$repository:base" >/dev/null
"$ferofs" push --base "oci://$repository:base" "$work/pushed.erofs" "oci://$repository:difference" >/dev/null

# What the container does: it reads all layers and writes to the top one.
script='cat /data/kept /data/changed; stat -c "%a %u %g" /data/link; cat /data/nnn*; cat /data/old/*
find /data | sort; sha256sum /data/large; echo written > /data/new; cat /data/new
busybox grep " / overlay " /proc/mounts'

run_mode() {
    local mode=$1 dir=$work/$1 index=false reference=$repository:tar stored=3
    case $mode in
    default | merged) ;;
    tar-index) index=true ;;
    difference) reference=$repository:$mode stored=2 ;;
    pushed | converted) reference=$repository:$mode stored=1 ;;
    layers) reference=$repository:$mode ;;
    *) fail "unknown mode: $mode" ;;
    esac
    # The number of layers that containerd mounts.
    local mounted=$stored
    [ "$mode" = merged ] && mounted=1
    mkdir -p "$dir"
    cat >"$dir/config.toml" <<EOF
version = 3
root = "$dir/root"
state = "$dir/state"
[grpc]
address = "$dir/containerd.sock"
[ttrpc]
address = "$dir/containerd.sock.ttrpc"
[plugins."io.containerd.differ.v1.erofs"]
mkfs_options = ["-T0", "--mkfs-time", "--sort=none"]
enable_tar_index = $index
[plugins."io.containerd.service.v1.diff-service"]
default = ["erofs", "walking"]
# "(+erofs)" for images that say in os.features that their layers are EROFS; others match, too.
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
platform = "linux(+erofs)"
snapshotter = "erofs"
differ = "erofs"
EOF
    containerd --config "$dir/config.toml" >"$work/containerd-$mode.log" 2>&1 &
    local pid=$!
    pids+=("$pid")
    local ctr=(ctr --address "$dir/containerd.sock" --namespace test)
    await "${ctr[@]}" version
    "${ctr[@]}" plugins ls | grep -E 'differ.* erofs .*ok' >/dev/null || fail "no EROFS differ"
    "${ctr[@]}" images pull --plain-http --snapshotter erofs "$reference" >"$work/pull-$mode.log" 2>&1

    local snapshots=$dir/root/io.containerd.snapshotter.v1.erofs/snapshots layers=()
    # Snapshots are numbered from the lowest layer on.
    mapfile -t layers < <(find "$snapshots" -name layer.erofs | sort -V)
    [ ${#layers[@]} -eq $stored ] || fail "$mode: ${#layers[@]} layers instead of $stored"
    for layer in "${layers[@]}"; do
        if [ "$mode" = tar-index ]; then
            # Behind the index stands the layer, byte for byte.
            [ "$(dd if="$layer" bs=1 skip=1036 count=1 status=none | od -An -tu1 | tr -d ' ')" = 9 ] ||
                fail "$layer: not in blocks of 512 bytes"
            # The primary device is the index; its length in blocks is at byte 36 of the superblock.
            local blocks
            blocks=$(od -An -tu4 -j 1060 -N 4 "$layer" | tr -d ' ')
            grep -q "$(tail -c +$((blocks * 512 + 1)) "$layer" | sha256sum | cut -d' ' -f1)" "$work"/layout/blobs/sha256/* ||
                fail "$layer: the layer is not behind its index"
        fi
        "$ferofs" check "$layer" >/dev/null || fail "$layer: not sound"
        if [ "$reference" != "$repository:tar" ]; then
            skopeo inspect --tls-verify=false --raw "docker://$reference" | grep -q "$(sha256sum "$layer" | cut -d' ' -f1)" ||
                fail "$layer: is not what the registry has"
        fi
    done
    if [ "$mode" = merged ]; then
        local top
        top=$(dirname "${layers[2]}")
        mkfs.erofs --quiet --aufs --ovlfs-strip=1 "$top/fsmeta.erofs" "${layers[@]}"
    fi
    local root=(--snapshotter erofs "$reference")
    if [ "$mode" = tar-index ]; then
        # containerd 2.4 looks users up in the layers with a reader of its own, which refuses images with extra
        # devices, as all indexes are, those of erofs-utils too. So containerd mounts first, and runs what it mounted.
        mkdir "$dir/rootfs"
        "${ctr[@]}" images mount --rw --snapshotter erofs "$reference" "$dir/rootfs" >"$work/mount-$mode.log" 2>&1
        root=(--rootfs "$dir/rootfs")
    fi
    # The program, a shell, and its environment are in the configuration of the image, which `ferofs convert` takes over.
    local flags=(--env PATH=/bin) program=(/bin/sh -c "$script")
    case $mode in converted | layers) flags=() program=() ;; esac
    "${ctr[@]}" run --rm --net-host "${flags[@]}" "${root[@]}" "test-$mode" "${program[@]}" <<<"$script"$'\nexit' \
        >"$dir/output" 2>"$work/run-$mode.log" || fail "$mode: exit code $?: $(cat "$dir/output")"
    if [ "$mode" = tar-index ]; then
        "${ctr[@]}" images unmount "$dir/rootfs" >/dev/null
    fi
    local lower
    lower=$(tail -n 1 "$dir/output" | tr ',' '\n' | sed -n 's/^lowerdir+*=//p' | tr ':' '\n' | wc -l)
    [ "$lower" -eq $mounted ] || fail "$mode: $lower layers below: $(tail -n 1 "$dir/output")"
    head -n -1 "$dir/output" | diff "$here/expected.txt" - || fail "$mode: the container saw something else"
    # By mount.erofs, as an administrator would look into a layer.
    mkdir "$dir/mnt"
    if [ "$mode" != tar-index ]; then
        # The second layer, or the only one.
        mount.erofs -o ro,nodev "${layers[stored / 2]}" "$dir/mnt"
        [ "$(cat "$dir/mnt/data/changed")" = second ] || fail "$mode: mount.erofs shows something else"
        umount "$dir/mnt"
    fi
    "${ctr[@]}" images rm --sync "$reference" >/dev/null
    kill "$pid" && wait "$pid" || true
    echo "ok: $mode"
}

for mode in "${modes[@]}"; do
    run_mode "$mode"
done
