# The commands that run in each environment. Arguments: FEROFS DIR OUT TREE STEP...
#
# DIR contains the trees TREE and TREE-2; the steps write into OUT. Each step prints one line: its name and `ok`, or its name, exit code and
# messages.
set -u
ferofs=$1 dir=$2 out=$3 tree=$2/$4
shift 4
mkdir -p "$out/mnt"
# Nothing stays mounted when a step fails.
trap 'umount -l "$out/mnt" 2> /dev/null' EXIT

step() {
    name=$1
    shift
    "$@" > "$out/stdout" 2> "$out/stderr"
    code=$?
    if [ $code = 0 ]; then
        echo "$name: ok"
    else
        echo "$name: $code: $(head -c 1000 "$out/stderr" | tr '\n' ' ')"
    fi
}

# Prints names, types, modes, owners, times, links, sizes and targets; the attributes; and a digest of an archive, which also has content,
# hard links and device numbers. tar ignores sockets with a message; find has listed them.
list() {
    find "$1" -type d -printf '%P\t%y\t%m\t%U:%G\t%T@\n' -o -printf '%P\t%y\t%m\t%U:%G\t%T@\t%n\t%s\t%l\n' | sort
    # Not by `cd`, which needs the path of the working directory.
    env --chdir="$1" find . -print0 | sort -z |
        env --chdir="$1" xargs -0 getfattr --no-dereference --dump --match=- --encoding=hex
    tar --create --format=posix --pax-option=delete=atime,delete=ctime,exthdr.name=x --sort=name -C "$1" . 2> "$out/tar" | sha256sum
    grep -v 'socket ignored' "$out/tar"
}

same() {
    list "$1" > "$out/list-1"
    list "$2" > "$out/list-2"
    cmp "$out/list-1" "$out/list-2" >&2 && return
    diff "$out/list-1" "$out/list-2" | head -n 4 >&2
    return 1
}

mounted() {
    "$ferofs" mount "$@" "$out/image" "$out/mnt" || return
    same "$tree" "$out/mnt"
    code=$?
    "$ferofs" umount "$out/mnt" && return $code
}

extracted() {
    "$ferofs" extract "$1" "$2" && same "$3" "$2"
}

# Updates a copy of the image to the second tree.
patched() {
    cp "$out/image" "$out/updated" &&
        "$ferofs" patch create "$out/image" "$tree-2" -o "$out/patch" &&
        "$ferofs" patch apply "$out/updated" "$out/patch" &&
        "$ferofs" check --deep "$out/updated" &&
        extracted "$out/updated" "$out/updated-tree" "$tree-2"
}

for name; do
    case $name in
        build) step build "$ferofs" build "$tree" "$out/image" ;;
        build-here) step build-here "$ferofs" build "$tree" "$dir/image" ;;
        check) step check "$ferofs" check --deep "$out/image" ;;
        diff) step diff "$ferofs" diff "$tree" "$out/image" ;;
        mount) step mount mounted ;;
        fuse) step fuse mounted --fuse ;;
        extract) step extract extracted "$out/image" "$out/extracted" "$tree" ;;
        patch) step patch patched ;;
        *) echo "no step $name" ;;
    esac
done
