use super::whiteouts::{OPAQUE, ORIGIN};
use super::*;
use crate::options::Options;
use crate::paths::join;
use crate::tree::Kind;

fn layers() -> LayeredTree {
    LayeredTree::new(Timestamp { secs: 7, nanos: 0 })
}

fn layered_file(layers: &mut LayeredTree, body: Body) -> LayeredFile {
    let xattrs = layers.attributes(Vec::new());
    let mtime = Timestamp { secs: 9, nanos: 0 }.into();
    LayeredFile { body, permissions: 0o600, uid: 1, gid: 2, mtime, xattrs, ignores_options: false }
}

fn put(layers: &mut LayeredTree, path: &str, body: Body) -> Result<(), EntryFault> {
    let layered_file = layered_file(layers, body);
    layers.put(path.as_bytes(), layered_file)
}

fn link_to(target: &str) -> Body {
    Body::Symlink(target.as_bytes().into())
}

fn dir() -> Body {
    Body::Directory(Box::default())
}

/// All paths, in order.
fn paths(layers: LayeredTree) -> Vec<String> {
    let tree = layers.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    let mut paths: Vec<String> = (0..tree.dirs.len() as u32)
        .flat_map(|dir| {
            let owner =
                tree.ids().find(|id| matches!(tree.node(*id).kind, Kind::Directory(n) if n == dir));
            let base = tree.path_bytes(owner.unwrap());
            tree.entries_of(dir)
                .iter()
                .map(|entry| String::from_utf8(join(&base, tree.text(entry.name))).unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    paths.sort();
    paths
}

#[test]
fn millions_of_files_take_little_memory() {
    assert!(size_of::<LayeredFile>() <= 72);
    assert!(size_of::<crate::tree::Node>() <= 88);
}

#[test]
fn paths_stay_within_the_root() {
    let mut layers = layers();
    for path in ["/a/./b", "../../c", "a/../d", "//e//", "x/../../f"] {
        put(&mut layers, path, Body::Fifo).unwrap();
    }
    assert_eq!(put(&mut layers, "..", Body::Fifo), Err(EntryFault::RootNotDirectory));
    put(&mut layers, "./", dir()).unwrap();
    assert_eq!(layers.files[0].permissions, 0o600);
    assert_eq!(paths(layers), ["a", "a/b", "c", "d", "e", "f"]);
}

#[test]
fn later_entries_replace_earlier_ones() {
    let mut layers = layers();
    for (path, body) in [
        ("d/x", Body::Fifo),
        ("d", dir()),
        ("e/x", Body::Fifo),
        ("e", link_to("f")),
        ("f", Body::Fifo),
        ("f", dir()),
    ] {
        put(&mut layers, path, body).unwrap();
    }
    let tree = layers.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    let kinds: Vec<FileType> = tree.nodes.iter().map(|node| node.kind.file_type()).collect();
    use FileType::{Directory, Fifo, Symlink};
    assert_eq!(kinds, [Directory, Directory, Symlink, Directory, Fifo]);
    assert_eq!(tree.nodes.iter().map(|node| node.nlink).collect::<Vec<_>>(), [4, 2, 1, 2, 1]);
}

#[test]
fn hard_links_need_a_file() {
    let mut layers = layers();
    put(&mut layers, "d/f", Body::Fifo).unwrap();
    layers.link(b"l", b"/d/f").unwrap();
    layers.link(b"d/f", b"d/f").unwrap();
    assert_eq!(layers.link(b"m", b"nothing"), Err(EntryFault::LinkTargetMissing));
    assert_eq!(layers.link(b"m", b"no/thing"), Err(EntryFault::LinkTargetMissing));
    assert_eq!(layers.link(b"m", b"d"), Err(EntryFault::LinkToDirectory));
    assert_eq!(layers.link(b"m", b"."), Err(EntryFault::LinkToDirectory));
    assert_eq!(layers.link(b"/", b"l"), Err(EntryFault::RootNotDirectory));
    let tree = layers.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    assert_eq!(tree.nodes.len(), 3);
    assert_eq!(tree.nodes[2].nlink, 2);
}

#[test]
fn symbolic_links_in_a_path_are_followed() {
    let mut layers = layers();
    put(&mut layers, "usr/lib/a", Body::Fifo).unwrap();
    for (path, target) in [
        ("lib", "usr/lib"),
        ("abs", "/usr"),
        ("up", "../../usr/lib"),
        ("loop", "loop"),
        ("gone", "nothing"),
    ] {
        put(&mut layers, path, link_to(target)).unwrap();
    }
    for path in ["lib/b", "abs/lib/c", "up/d"] {
        put(&mut layers, path, Body::Fifo).unwrap();
    }
    assert_eq!(put(&mut layers, "loop/x", Body::Fifo), Err(EntryFault::SymlinkLoop));
    assert_eq!(put(&mut layers, "gone/x", Body::Fifo), Err(EntryFault::NotADirectory));
    assert_eq!(put(&mut layers, "usr/lib/a/x", Body::Fifo), Err(EntryFault::NotADirectory));
    assert_eq!(put(&mut layers, &"n".repeat(256), Body::Fifo), Err(EntryFault::NameTooLong));
    assert_eq!(put(&mut layers, "s", link_to("")), Err(EntryFault::SymlinkTarget));
    let found = paths(layers);
    assert!(
        ["usr/lib/b", "usr/lib/c", "usr/lib/d"]
            .iter()
            .all(|path| found.contains(&path.to_string()))
    );
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let mut layers = layers();
    for path in ["a", "d/x", "d/y/z", "o/x", "o/y/z", "k/x"] {
        put(&mut layers, path, Body::Fifo).unwrap();
    }
    layers.next_layer();
    put(&mut layers, "o/y/new", Body::Fifo).unwrap();
    put(&mut layers, "d", dir()).unwrap();
    put(&mut layers, "d/own", Body::Fifo).unwrap();
    for path in ["a", "d", "nothing", "no/thing"] {
        layers.remove_lower(path.as_bytes()).unwrap();
    }
    layers.remove_lower_entries(b"o").unwrap();
    layers.next_layer();
    layers.remove_lower(b"k/x").unwrap();
    assert_eq!(paths(layers), ["d", "d/own", "k", "o", "o/y", "o/y/new"]);
}

#[test]
fn whiteouts_remove_the_target_of_a_hard_link_of_their_layer() {
    for is_last in [true, false] {
        let mut layers = layers();
        for path in ["c/d", "c/e/f", "o/d/e"] {
            put(&mut layers, path, Body::Fifo).unwrap();
        }
        layers.next_layer();
        layers.link(b"new", b"c/d").unwrap();
        layers.link(b"other", b"o/d/e").unwrap();
        let mut whiteouts = ["c", "c/e/f"];
        if is_last {
            whiteouts.reverse();
        }
        for path in whiteouts {
            layers.remove_lower(path.as_bytes()).unwrap();
        }
        layers.remove_lower_entries(b"o").unwrap();
        assert_eq!(paths(layers), ["new", "o", "other"]);
    }
}

#[test]
fn whiteouts_become_overlayfs_s() {
    let mut layers = layers();
    let time = Timestamp { secs: 1, nanos: 0 };
    put(&mut layers, "file", Body::Fifo).unwrap();
    layers.put_whiteout(b"file", time).unwrap();
    layers.put_whiteout(b"d/gone", time).unwrap();
    layers.put_whiteout(b"again", time).unwrap();
    put(&mut layers, "again/x", Body::Fifo).unwrap_err();
    put(&mut layers, "again", dir()).unwrap();
    layers.mark_opaque(b"new").unwrap();
    let set = |path: &[u8], layers: &mut LayeredTree| {
        let file = layers.file_at(path).unwrap().unwrap();
        layers.files[file.index()].clone()
    };
    assert!(matches!(set(b"file", &mut layers).body, Body::Fifo));
    assert!(set(b"d/gone", &mut layers).is_whiteout());
    // A later layer describes the directory anew, whose whiteouts stay.
    layers.next_layer();
    put(&mut layers, "d", dir()).unwrap();
    // So do the marks of opaque directories.
    put(&mut layers, "again", dir()).unwrap();
    put(&mut layers, "new", dir()).unwrap();
    layers.mark_directories_with_whiteouts();
    assert_eq!(*set(b"d", &mut layers).xattrs, [(ORIGIN.to_vec(), vec![])]);
    for path in [b"again".as_slice(), b"new"] {
        assert_eq!(*set(path, &mut layers).xattrs, [(OPAQUE.to_vec(), b"y".to_vec())]);
    }
    let mut options = Options::new("x");
    options.source.strip_overlay = true;
    let tree = layers.finish(&options, &mut Vec::new()).unwrap();
    assert_eq!(tree.nodes.len(), 5);
    assert!(tree.nodes.iter().all(|node| node.xattrs == crate::tree::xattr::SetId::default()));
}
