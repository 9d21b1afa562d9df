use super::whiteouts::{OPAQUE, ORIGIN};
use super::*;
use crate::Options;
use crate::paths::join;
use crate::tree::Kind;

fn sketch() -> Sketch {
    Sketch::new(Timestamp { secs: 7, nanos: 0 })
}

fn draft(sketch: &mut Sketch, body: Body) -> Draft {
    let xattrs = sketch.attributes(Vec::new());
    let mtime = Timestamp { secs: 9, nanos: 0 };
    Draft { body, permissions: 0o600, uid: 1, gid: 2, mtime, xattrs, settled: false }
}

fn put(sketch: &mut Sketch, path: &str, body: Body) -> Result<(), Misplaced> {
    let draft = draft(sketch, body);
    sketch.put(path.as_bytes(), draft)
}

fn link_to(target: &str) -> Body {
    Body::Symlink(target.as_bytes().into())
}

fn dir() -> Body {
    Body::Directory(Names::new())
}

/// All paths, in order.
fn paths(sketch: Sketch) -> Vec<String> {
    let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    let mut paths: Vec<String> = (0..tree.dirs.len() as u32)
        .flat_map(|dir| {
            let owner = tree.ids().find(|id| matches!(tree.node(*id).kind, Kind::Directory(n) if n == dir));
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
fn paths_stay_within_the_root() {
    let mut sketch = sketch();
    for path in ["/a/./b", "../../c", "a/../d", "//e//", "x/../../f"] {
        put(&mut sketch, path, Body::Fifo).unwrap();
    }
    assert_eq!(put(&mut sketch, "..", Body::Fifo), Err(Misplaced::Root));
    put(&mut sketch, "./", dir()).unwrap();
    assert_eq!(sketch.files[0].permissions, 0o600);
    assert_eq!(paths(sketch), ["a", "a/b", "c", "d", "e", "f"]);
}

#[test]
fn later_entries_replace_earlier_ones() {
    let mut sketch = sketch();
    for (path, body) in [
        ("d/x", Body::Fifo),
        ("d", dir()),
        ("e/x", Body::Fifo),
        ("e", link_to("f")),
        ("f", Body::Fifo),
        ("f", dir()),
    ] {
        put(&mut sketch, path, body).unwrap();
    }
    let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    let kinds: Vec<FileType> = tree.nodes.iter().map(|node| node.kind.file_type()).collect();
    use FileType::{Directory, Fifo, Symlink};
    assert_eq!(kinds, [Directory, Directory, Symlink, Directory, Fifo]);
    assert_eq!(tree.nodes.iter().map(|node| node.nlink).collect::<Vec<_>>(), [4, 2, 1, 2, 1]);
}

#[test]
fn hard_links_need_a_file() {
    let mut sketch = sketch();
    put(&mut sketch, "d/f", Body::Fifo).unwrap();
    sketch.link(b"l", b"/d/f").unwrap();
    sketch.link(b"d/f", b"d/f").unwrap();
    assert_eq!(sketch.link(b"m", b"nothing"), Err(Misplaced::LinkToNothing));
    assert_eq!(sketch.link(b"m", b"no/thing"), Err(Misplaced::LinkToNothing));
    assert_eq!(sketch.link(b"m", b"d"), Err(Misplaced::LinkToDirectory));
    assert_eq!(sketch.link(b"m", b"."), Err(Misplaced::LinkToDirectory));
    assert_eq!(sketch.link(b"/", b"l"), Err(Misplaced::Root));
    let tree = sketch.finish(&Options::new("x"), &mut Vec::new()).unwrap();
    assert_eq!(tree.nodes.len(), 3);
    assert_eq!(tree.nodes[2].nlink, 2);
}

#[test]
fn links_on_the_way_are_followed_to_what_is_there() {
    let mut sketch = sketch();
    put(&mut sketch, "usr/lib/a", Body::Fifo).unwrap();
    for (path, target) in
        [("lib", "usr/lib"), ("abs", "/usr"), ("up", "../../usr/lib"), ("loop", "loop"), ("gone", "nothing")]
    {
        put(&mut sketch, path, link_to(target)).unwrap();
    }
    for path in ["lib/b", "abs/lib/c", "up/d"] {
        put(&mut sketch, path, Body::Fifo).unwrap();
    }
    assert_eq!(put(&mut sketch, "loop/x", Body::Fifo), Err(Misplaced::Loop));
    assert_eq!(put(&mut sketch, "gone/x", Body::Fifo), Err(Misplaced::NotADirectory));
    assert_eq!(put(&mut sketch, "usr/lib/a/x", Body::Fifo), Err(Misplaced::NotADirectory));
    assert_eq!(put(&mut sketch, &"n".repeat(256), Body::Fifo), Err(Misplaced::NameTooLong));
    assert_eq!(put(&mut sketch, "s", link_to("")), Err(Misplaced::Target));
    let found = paths(sketch);
    assert!(["usr/lib/b", "usr/lib/c", "usr/lib/d"].iter().all(|path| found.contains(&path.to_string())));
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let mut sketch = sketch();
    for path in ["a", "d/x", "d/y/z", "o/x", "o/y/z", "k/x"] {
        put(&mut sketch, path, Body::Fifo).unwrap();
    }
    sketch.next_layer();
    put(&mut sketch, "o/y/new", Body::Fifo).unwrap();
    put(&mut sketch, "d", dir()).unwrap();
    put(&mut sketch, "d/own", Body::Fifo).unwrap();
    for path in ["a", "d", "nothing", "no/thing"] {
        sketch.remove_lower(path.as_bytes()).unwrap();
    }
    sketch.hide_lower(b"o").unwrap();
    sketch.next_layer();
    sketch.remove_lower(b"k/x").unwrap();
    assert_eq!(paths(sketch), ["d", "d/own", "k", "o", "o/y", "o/y/new"]);
}

#[test]
fn whiteouts_become_overlayfs_s() {
    let mut sketch = sketch();
    let time = Timestamp { secs: 1, nanos: 0 };
    put(&mut sketch, "file", Body::Fifo).unwrap();
    sketch.put_whiteout(b"file", time).unwrap();
    sketch.put_whiteout(b"d/gone", time).unwrap();
    sketch.put_whiteout(b"again", time).unwrap();
    put(&mut sketch, "again/x", Body::Fifo).unwrap_err();
    put(&mut sketch, "again", dir()).unwrap();
    sketch.mark_opaque(b"new").unwrap();
    let set = |path: &[u8], sketch: &mut Sketch| {
        let file = sketch.file_at(path).unwrap().unwrap();
        sketch.files[file.index()].clone()
    };
    assert!(matches!(set(b"file", &mut sketch).body, Body::Fifo));
    assert!(set(b"d/gone", &mut sketch).is_whiteout());
    // A later layer describes the directory anew, whose whiteouts stay.
    sketch.next_layer();
    put(&mut sketch, "d", dir()).unwrap();
    // So do the marks of opaque directories.
    put(&mut sketch, "again", dir()).unwrap();
    put(&mut sketch, "new", dir()).unwrap();
    sketch.show_merged();
    assert_eq!(*set(b"d", &mut sketch).xattrs, [(ORIGIN.to_vec(), vec![])]);
    for path in [b"again".as_slice(), b"new"] {
        assert_eq!(*set(path, &mut sketch).xattrs, [(OPAQUE.to_vec(), b"y".to_vec())]);
    }
    let mut options = Options::new("x");
    options.source.strip_overlay = true;
    let tree = sketch.finish(&options, &mut Vec::new()).unwrap();
    assert_eq!(tree.nodes.len(), 5);
    assert!(tree.nodes.iter().all(|node| node.xattrs == crate::tree::xattr::SetId::default()));
}
