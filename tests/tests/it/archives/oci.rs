//! OCI image layouts: layers are merged as container runtimes do, one of several images is selected, and damaged layouts
//! are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferofs_tests::tar::{archive, file, pax, soft_link};
use ferofs_tests::{Mount, Run, ferofs, need, tree};
use sha2::{Digest, Sha256};

use crate::common::erofs_utils::mkfs_command;
use crate::common::fixture::Fixture;

const FIXED: [&str; 6] =
    ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71", "--preset", "fast"];
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A layout in a directory.
struct Layout(PathBuf);

impl Layout {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(dir)
    }

    /// Adds a blob, and returns its descriptor, with `more` fields.
    fn add(&self, kind: &str, bytes: &[u8], more: &str) -> String {
        let digest: String =
            Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(self.0.join("blobs/sha256").join(&digest), bytes).unwrap();
        format!(
            r#"{{"mediaType":"{kind}","digest":"sha256:{digest}","size":{}{more}}}"#,
            bytes.len()
        )
    }

    /// Adds an image of these layers, and returns the descriptor of its manifest.
    fn image(&self, layers: &[String], more: &str) -> String {
        let config =
            r#"{"architecture":"s390x","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#;
        let config = self.add("application/vnd.oci.image.config.v1+json", config.as_bytes(), "");
        let layers = layers.join(",");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#);
        self.add(MANIFEST, manifest.as_bytes(), more)
    }

    fn index(&self, images: &[String]) {
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, images.join(","));
        fs::write(self.0.join("index.json"), index).unwrap();
    }
}

/// Compresses `bytes` with `tool`.
fn packed(fixture: &Fixture, tool: &str, bytes: &[u8]) -> Vec<u8> {
    let plain = fixture.path("plain");
    fs::write(&plain, bytes).unwrap();
    Run::new(tool).arg("-c").arg(plain).run().success().stdout
}

fn tar(fixture: &Fixture, arguments: &[&str]) -> Vec<u8> {
    let path = fixture.path("layer.tar");
    let made = Command::new("tar")
        .current_dir(fixture.path(""))
        .args(["-c", "--format=pax", "--xattrs", "--xattrs-include=*", "--sort=name", "--file"])
        .arg(&path)
        .args(arguments)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::read(path).unwrap()
}

/// A tree, and a layout whose layers give the same tree: upper layers remove, hide and replace files of lower ones.
fn tree_and_layout() -> Option<(Fixture, Layout)> {
    for tool in ["tar", "gzip", "zstd"] {
        need::tool(tool, "OCI image layouts")?;
    }
    let fixture = Fixture::new(&tree::Options { deep: 5, wide: 50, ..tree::Options::small() });
    let source = fixture.source();
    let sockets = Command::new("find").arg(&source).args(["-type", "s", "-delete"]).status();
    assert!(sockets.unwrap().success());
    for name in ["device too", "fifo too"] {
        // GNU tar archives these hard links as separate files.
        fs::remove_file(source.join("kinds/links").join(name)).unwrap();
    }
    let lowest = archive(&[
        file("junk", b"junk"),
        file("gone/a/b", b"gone"),
        file("kinds/hidden", b"hidden"),
        file("kinds/below/hidden", b"hidden"),
        file("names", b"a file that becomes a directory"),
    ]);
    let whiteouts = fixture.path("whiteouts");
    fs::create_dir_all(whiteouts.join("kinds")).unwrap();
    for name in [".wh.junk", ".wh.gone", ".wh.nothing", "kinds/.wh..wh..opq"] {
        fs::write(whiteouts.join(name), "").unwrap();
    }
    let top = [".wh.junk", ".wh.gone", ".wh.nothing", "kinds/.wh..wh..opq"];
    let top = [&["-C", "whiteouts"], &top[..], &["-C", "../source", "./kinds"]].concat();
    let layout = Layout::new(fixture.path("layout"));
    let layers = [
        layout.add(&format!("{LAYER}+gzip"), &packed(&fixture, "gzip", &lowest), ""),
        layout.add(LAYER, &tar(&fixture, &["-C", "source", "."]), ""),
        layout.add(&format!("{LAYER}+zstd"), &packed(&fixture, "zstd", &tar(&fixture, &top)), ""),
    ];
    layout.index(&[layout.image(&layers, "")]);
    Some((fixture, layout))
}

fn build(fixture: &Fixture, source: &Path, options: &[&str]) -> PathBuf {
    let image = fixture.path("image");
    ferofs().arg("build").args(FIXED).args(options).arg(source).arg(&image).run().success();
    image
}

#[test]
fn a_layout_gives_the_same_image_as_its_tree() {
    let Some((fixture, layout)) = tree_and_layout() else { return };
    let expected = fs::read(build(&fixture, &fixture.source(), &[])).unwrap();
    let image = build(&fixture, &layout.0, &["--verify"]);
    assert!(fs::read(&image).unwrap() == expected, "a directory");
    ferofs().arg("check").arg(&image).run().success();
    if need::kernel_erofs("an OCI image through the kernel") {
        let mount = Mount::kernel(&image, &fixture.directory("mount")).unwrap();
        fixture.assert_same_as_source(mount.path());
        mount.unmount().unwrap();
    }
    let options = ["-zlz4", "-T2000000000", "--mkfs-time", "--oci", "-U", FIXED[3]];
    mkfs_command(&fixture).args(options).args([&fixture.path("image"), &layout.0]).run().success();
    assert!(fs::read(&image).unwrap() == expected, "mkfs.erofs --oci");
    // Archives of the layout, with the order of skopeo and with another one.
    for order in [["blobs", "index.json", "oci-layout"], ["oci-layout", "index.json", "blobs"]] {
        let path = fixture.path("layout.tar");
        let made =
            Command::new("tar").arg("-C").arg(&layout.0).arg("-cf").arg(&path).args(order).status();
        assert!(made.unwrap().success());
        assert!(fs::read(build(&fixture, &path, &[])).unwrap() == expected, "{order:?}");
    }
    let path = fixture.path("layout.tar.gz");
    fs::write(&path, packed(&fixture, "gzip", &fs::read(fixture.path("layout.tar")).unwrap()))
        .unwrap();
    assert!(
        fs::read(build(&fixture, &path, &["--from", "oci"])).unwrap() == expected,
        "compressed"
    );
}

#[test]
fn an_archive_of_a_layout_is_not_written_over() {
    let fixture = Fixture::empty();
    let path = fixture.path("layout.tar");
    let marker = br#"{"imageLayoutVersion":"1.0.0"}"#;
    let bytes = archive(&[file("oci-layout", marker), file("index.json", b"{}")]);
    fs::write(&path, &bytes).unwrap();
    for command in [ferofs().args(["build", "--force"]), mkfs_command(&fixture).arg("--oci=f")] {
        let refused = command.args([&path, &path]).run();
        assert!(
            refused.code == 1 && refused.stderr.contains("also an input"),
            "{}",
            refused.stderr
        );
    }
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_layout_can_be_built_as_an_ordinary_directory() {
    let Some((fixture, layout)) = tree_and_layout() else { return };
    let image = build(&fixture, &layout.0, &["--from", "dir"]);
    let listed = ferofs().args(["ls"]).arg(&image).run().success();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "blobs\nindex.json\noci-layout\n");
    // As erofs-utils: without --oci it is a directory.
    mkfs_command(&fixture).args([&image, &layout.0]).run().success();
    let listed = ferofs().args(["ls"]).arg(&image).run().success();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("oci-layout"));
    // An ordinary archive: it has files with the names of a layout, but another file before them.
    let tar = fixture.path("plain.tar");
    fs::write(
        &tar,
        archive(&[file("readme", b""), file("oci-layout", b""), file("index.json", b"")]),
    )
    .unwrap();
    build(&fixture, &tar, &[]);
}

#[test]
fn platform_and_name_select_one_of_several_images() {
    let fixture = Fixture::empty();
    let layout = Layout::new(fixture.path("layout"));
    let image = |text: &str, more: &str| {
        let layer = layout.add(LAYER, &archive(&[file(text, text.as_bytes())]), "");
        layout.image(&[layer], more)
    };
    let platform = |arch: &str| format!(r#","platform":{{"os":"linux","architecture":"{arch}"}}"#);
    let name =
        |name: &str| format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#);
    let inner = format!(
        r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#,
        image("for-sparc", &platform("sparc64")),
        image("for-mips", &platform("mips"))
    );
    layout.index(&[
        layout.add(INDEX, inner.as_bytes(), &name("multi")),
        image("single", &name("other")),
    ]);
    let shown = |options: &[&str]| {
        let image = build(&fixture, &layout.0, options);
        String::from_utf8(ferofs().arg("ls").arg(image).run().success().stdout).unwrap()
    };
    assert_eq!(shown(&["--image-name=multi", "--platform=linux/mips"]), "for-mips\n");
    assert_eq!(shown(&["--image-name=multi", "--platform=linux/sparc64"]), "for-sparc\n");
    assert_eq!(shown(&["--image-name=other"]), "single\n");
    // The entry in the index has no platform, so the configuration of the image decides.
    assert_eq!(shown(&["--image-name=other", "--platform=linux/s390x"]), "single\n");
    for (options, message) in [
        (&[][..], "several images; --image-name or --platform selects one: "),
        (&["--image-name=none"], "no image called none for linux/"),
        (&["--image-name=multi", "--platform=linux/vax"], "available: linux/sparc64, linux/mips"),
        (&["--image-name=other", "--platform=linux/mips"], "an image for linux/s390x"),
    ] {
        let outcome =
            ferofs().arg("build").args(options).args([&layout.0, &fixture.path("no")]).run();
        assert!(outcome.failure(1).stderr.contains(message), "{message}");
        assert!(!fixture.path("no").exists());
    }
}

#[test]
fn a_damaged_layout_is_refused_with_the_name_of_the_blob() {
    let fixture = Fixture::empty();
    let layout = Layout::new(fixture.path("layout"));
    let bytes = archive(&[file("a", b"content")]);
    let layer = layout.add(LAYER, &bytes, "");
    layout.index(&[layout.image(std::slice::from_ref(&layer), "")]);
    let digest = layer.split("sha256:").nth(1).unwrap().split('"').next().unwrap();
    let blob = layout.0.join("blobs/sha256").join(digest);
    let fails = |message: &str| {
        let image = fixture.path("image");
        let outcome = ferofs().arg("build").args([&layout.0, &image]).run().failure(1);
        assert!(outcome.stderr.contains(message), "{message}: {}", outcome.stderr);
        assert!(!image.exists());
        outcome.stderr
    };
    let mut damaged = bytes.clone();
    damaged[600] ^= 1;
    fs::write(&blob, damaged).unwrap();
    assert!(fails("damaged: its digest is sha256:").contains(digest));
    fs::write(&blob, &bytes[..1024]).unwrap();
    assert!(fails("1024 bytes instead of").contains(digest));
    fs::remove_file(&blob).unwrap();
    assert!(fails("not in the layout").contains(digest));
    // A FIFO without a writer: opening it for reading would wait forever.
    rustix::fs::mknodat(rustix::fs::CWD, &blob, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(fails("not in the layout").contains(digest));
    for (kind, content, message) in [
        (LAYER, &b"not an archive\n".repeat(100)[..], "checksum is wrong"),
        ("text/plain", b"", "a layer of type text/plain"),
        (&format!("{LAYER}+gzip+encrypted"), b"", "an encrypted layer"),
    ] {
        layout.index(&[layout.image(&[layout.add(kind, content, "")], "")]);
        fails(message);
    }
    for (index, message) in [
        ("{", "malformed document"),
        (r#"{"manifests":[]}"#, "available: none"),
        (
            r#"{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:../x","size":1}]}"#,
            "hexadecimal digits",
        ),
    ] {
        fs::write(layout.0.join("index.json"), index).unwrap();
        fails(message);
    }
    fs::write(layout.0.join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).unwrap();
    fails("version 2.0.0");
    fs::remove_file(layout.0.join("oci-layout")).unwrap();
    let outcome =
        ferofs().args(["build", "--from=oci"]).args([&layout.0, &fixture.path("image")]).run();
    assert!(outcome.failure(1).stderr.contains("oci-layout is missing"));
}

/// The SHA-256 of `bytes`, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The parts of an archive that `docker save` wrote before version 25: configuration, layers, and `manifest.json`.
struct DockerImage {
    members: Vec<Vec<u8>>,
    entry: String,
}

/// An image with these layers. `name` gives the members that a layer becomes, and its name in the manifest.
fn docker_image(
    tag: &str,
    arch: &str,
    layers: &[Vec<u8>],
    name: impl Fn(usize, &[u8]) -> (Vec<Vec<u8>>, String),
) -> DockerImage {
    let diff_ids: Vec<_> =
        layers.iter().map(|layer| format!(r#""sha256:{}""#, digest(layer))).collect();
    let config = format!(
        r#"{{"architecture":"{arch}","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    );
    let config_name = format!("{}.json", digest(config.as_bytes()));
    let mut members = Vec::new();
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let (added, name) = name(number, layer);
        members.extend(added);
        names.push(format!(r#""{name}""#));
    }
    members.push(file_of_any_name(&config_name, config.as_bytes()));
    let entry = format!(
        r#"{{"Config":"{config_name}","RepoTags":["{tag}"],"Layers":[{}]}}"#,
        names.join(",")
    );
    DockerImage { members, entry }
}

/// A file whose name may be longer than a plain header allows.
fn file_of_any_name(name: &str, content: &[u8]) -> Vec<u8> {
    [pax(&[("path", name.as_bytes())]), file("long", content)].concat()
}

fn docker_archive(images: &[DockerImage]) -> Vec<u8> {
    let entries: Vec<_> = images.iter().map(|image| image.entry.as_str()).collect();
    let mut members: Vec<Vec<u8>> = images.iter().flat_map(|image| image.members.clone()).collect();
    members.push(file("manifest.json", format!("[{}]", entries.join(",")).as_bytes()));
    members.push(file("repositories", b"{}"));
    archive(&members)
}

fn in_directories(number: usize, layer: &[u8]) -> (Vec<Vec<u8>>, String) {
    let dir = format!("{number:064x}");
    let name = format!("{dir}/layer.tar");
    let version = file_of_any_name(&format!("{dir}/VERSION"), b"1.0");
    (vec![version, file_of_any_name(&name, layer)], name)
}

#[test]
fn archives_of_docker_save_are_images() {
    let Some(_) = need::tool("gzip", "compressed layers") else { return };
    let fixture = Fixture::empty();
    let layers = [
        archive(&[file("kept", b"kept"), file("gone", b"gone")]),
        archive(&[file(".wh.gone", b""), file("new", b"new")]),
        // The same as the lowest.
        archive(&[file("kept", b"kept"), file("gone", b"gone")]),
    ];
    let linked = |number: usize, layer: &[u8]| match number {
        2 => {
            let (dir, target) = (format!("{number:064x}"), format!("../{:064x}/layer.tar", 0));
            let name = format!("{dir}/layer.tar");
            let path = pax(&[("path", name.as_bytes()), ("linkpath", target.as_bytes())]);
            (vec![[path, soft_link("long", "x")].concat()], name)
        }
        _ => in_directories(number, layer),
    };
    let flat = |_: usize, layer: &[u8]| {
        let name = format!("{}.tar", digest(layer));
        (vec![file_of_any_name(&name, layer)], name)
    };
    let compressed = |_: usize, layer: &[u8]| {
        let packed = packed(&fixture, "gzip", layer);
        let name = format!("{}.tar.gz", digest(&packed));
        (vec![file_of_any_name(&name, &packed)], name)
    };
    let tar = fixture.path("docker.tar");
    let shown = |options: &[&str]| {
        let image = build(&fixture, &tar, options);
        String::from_utf8(ferofs().arg("ls").arg(image).run().success().stdout).unwrap()
    };
    for (what, image, layers) in [
        ("directories", docker_image("a:1", "s390x", &layers[..2], in_directories), "kept\nnew\n"),
        ("links", docker_image("a:1", "s390x", &layers, linked), "gone\nkept\nnew\n"),
        ("podman", docker_image("a:1", "s390x", &layers[..2], flat), "kept\nnew\n"),
        ("crane", docker_image("a:1", "s390x", &layers[..2], compressed), "kept\nnew\n"),
    ] {
        fs::write(&tar, docker_archive(&[image])).unwrap();
        assert_eq!(shown(&[]), layers, "{what}");
    }
    assert!(shown(&["--from=tar"]).contains("manifest.json"));
    let one = |tag: &str, arch: &str, name: &str| {
        docker_image(tag, arch, &[archive(&[file(name, b"")])], |_, layer| flat(0, layer))
    };
    fs::write(&tar, docker_archive(&[one("a:1", "mips", "a"), one("b:2", "sparc64", "b")]))
        .unwrap();
    assert_eq!(shown(&["--image-name=b:2"]), "b\n");
    assert_eq!(shown(&["--platform=linux/mips"]), "a\n");
    for (options, message) in [
        (
            &[][..],
            "several images; --image-name or --platform selects one: a:1 for linux/mips, b:2 for linux/sparc64",
        ),
        (&["--image-name=c"], "no image called c; available: a:1 for linux/mips"),
    ] {
        let outcome =
            ferofs().arg("build").args(options).args([&tar, &fixture.path("no")]).run().failure(1);
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    }
}

#[test]
fn damaged_archives_of_docker_save_are_refused() {
    let fixture = Fixture::empty();
    let tar = fixture.path("docker.tar");
    let fails = |bytes: &[u8], message: &str| {
        fs::write(&tar, bytes).unwrap();
        let outcome = ferofs().arg("build").args([&tar, &fixture.path("no")]).run().failure(1);
        assert!(outcome.stderr.contains(message), "{message}: {}", outcome.stderr);
    };
    let layer = archive(&[file("a", b"content")]);
    let good = docker_archive(&[docker_image(
        "a:1",
        "mips",
        std::slice::from_ref(&layer),
        in_directories,
    )]);
    let at = good.windows(7).position(|bytes| bytes == b"content").unwrap();
    let mut damaged = good.clone();
    damaged[at] ^= 1;
    fails(&damaged, "damaged: its digest is sha256:");
    let missing = docker_image("a:1", "mips", &[layer], |number, layer| {
        let (mut members, name) = in_directories(number, layer);
        members.pop();
        (members, name)
    });
    fails(&docker_archive(&[missing]), "layer.tar is missing, which manifest.json names");
}

#[test]
fn other_forms_of_container_images_are_named() {
    let fixture = Fixture::empty();
    fs::write(fixture.source().join("version"), "Directory Transport Version: 1.1\n").unwrap();
    let image = fixture.path("image");
    let outcome = ferofs().arg("build").args([fixture.source(), image.clone()]).run().failure(1);
    assert!(outcome.stderr.contains("skopeo copy dir:DIR oci:LAYOUT"), "{}", outcome.stderr);
    ferofs().args(["build", "--from=dir"]).args([fixture.source(), image.clone()]).run().success();
    for (name, message) in [
        ("docker://alpine", "skopeo copy NAME oci:LAYOUT"),
        ("oci:layout:latest", "give the path that follows"),
        ("oci://registry/image:tag", "ferofs pull"),
    ] {
        let outcome = ferofs().args(["build", name]).arg(&image).run().failure(1);
        assert!(outcome.stderr.contains(message), "{name}: {}", outcome.stderr);
    }
}
