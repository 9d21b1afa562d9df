//! OCI image layouts: layers are merged as container runtimes do, one of several images is
//! selected, and damaged layouts are refused.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::oci::{INDEX, LAYER, Layout, digest, name, platform};
use ferofs_tests::tar::{archive, file, pax, soft_link};
use ferofs_tests::{Run, ferofs, need, run};

use crate::common::fixture::Fixture;

const FIXED: [&str; 6] =
    ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71", "--preset", "fast"];

/// Compresses `bytes` with `tool`.
fn packed(fixture: &Fixture, tool: &str, bytes: &[u8]) -> Vec<u8> {
    let plain = fixture.path("plain");
    fs::write(&plain, bytes).unwrap();
    Run::new(tool).arg("-c").arg(plain).success().stdout
}

/// A layout whose upper layer removes and hides files of the lower one.
fn layout(fixture: &Fixture) -> Layout {
    let lower = ["junk", "gone/a/b", "dir/hidden", "kept"].map(|name| file(name, name.as_bytes()));
    let upper = [".wh.junk", ".wh.gone", ".wh.nothing", "dir/.wh..wh..opq", "dir/new"];
    let layout = Layout::new(fixture.path("layout")).unwrap();
    let layers = [
        layout.add(&format!("{LAYER}+gzip"), &packed(fixture, "gzip", &archive(&lower)), ""),
        layout.add(LAYER, &archive(&upper.map(|name| file(name, b""))), ""),
    ];
    layout.index(&[layout.image("s390x", &layers.map(Result::unwrap), "").unwrap()]).unwrap();
    layout
}

fn build(fixture: &Fixture, source: &Path, options: &[&str]) -> PathBuf {
    let image = fixture.path("image");
    ferofs!("build").args(FIXED).args(options).arg(source).arg(&image).success();
    image
}

#[test]
fn a_layout_gives_one_image_in_every_form() {
    require!(["tar", "gzip"].iter().all(|tool| need::tool(tool).is_some()));
    let fixture = Fixture::empty();
    let layout = layout(&fixture);
    let image = build(&fixture, &layout.0, &["--verify"]);
    let expected = fs::read(&image).unwrap();
    let listed = |path: &str| ferofs!("ls", &image, path).success().text();
    assert_eq!((listed("/"), listed("dir")), ("dir\nkept\n".into(), "new\n".into()));
    let options = ["-zlz4", "-T2000000000", "--mkfs-time", "--oci", "-U", FIXED[3]];
    fixture.tool("mkfs.erofs").args(options).args([&image, &layout.0]).success();
    assert!(fs::read(&image).unwrap() == expected, "mkfs.erofs --oci");
    // Archives of the layout, with the order of skopeo and with another one.
    let path = fixture.path("layout.tar");
    for order in [["blobs", "index.json", "oci-layout"], ["oci-layout", "index.json", "blobs"]] {
        run!("tar -C", &layout.0, "-cf", &path).args(order).success();
        assert!(fs::read(build(&fixture, &path, &[])).unwrap() == expected, "{order:?}");
    }
    fs::write(&path, packed(&fixture, "gzip", &fs::read(&path).unwrap())).unwrap();
    let image = build(&fixture, &path, &["--from", "oci"]);
    assert!(fs::read(image).unwrap() == expected, "compressed");
}

#[test]
fn an_archive_of_a_layout_is_not_written_over() {
    let fixture = Fixture::empty();
    let path = fixture.path("layout.tar");
    let marker = br#"{"imageLayoutVersion":"1.0.0"}"#;
    let bytes = archive(&[file("oci-layout", marker), file("index.json", b"{}")]);
    fs::write(&path, &bytes).unwrap();
    for command in [ferofs!("build --force"), fixture.tool("mkfs.erofs").arg("--oci=f")] {
        let refused = command.args([&path, &path]).run();
        refused.fails(1, "also an input");
    }
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_layout_can_be_built_as_an_ordinary_directory() {
    require!(need::tool("gzip").is_some());
    let fixture = Fixture::empty();
    let layout = layout(&fixture);
    let image = build(&fixture, &layout.0, &["--from", "dir"]);
    let listed = ferofs!("ls", &image).success();
    assert_eq!(listed.text(), "blobs\nindex.json\noci-layout\n");
    // As erofs-utils: without --oci it is a directory.
    fixture.tool("mkfs.erofs").args([&image, &layout.0]).success();
    let listed = ferofs!("ls", &image).success();
    assert!(listed.text().contains("oci-layout"));
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
    let layout = Layout::new(fixture.path("layout")).unwrap();
    let image = |text: &str, more: &str| {
        let layer = layout.add(LAYER, &archive(&[file(text, text.as_bytes())]), "").unwrap();
        layout.image("s390x", &[layer], more).unwrap()
    };
    let inner = format!(
        r#"{{"schemaVersion":2,"manifests":[{},{}]}}"#,
        image("for-sparc", &platform("sparc64")),
        image("for-mips", &platform("mips"))
    );
    let multi = layout.add(INDEX, inner.as_bytes(), &name("multi")).unwrap();
    layout.index(&[multi, image("single", &name("other"))]).unwrap();
    let shown = |options: &[&str]| {
        let image = build(&fixture, &layout.0, options);
        ferofs!("ls", image).success().text()
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
        let outcome = ferofs!("build").args(options).args([&layout.0, &fixture.path("no")]).run();
        assert!(outcome.failure(1).stderr.contains(message), "{message}");
        assert!(!fixture.path("no").exists());
    }
}

#[test]
fn a_damaged_layout_is_refused_with_the_name_of_the_blob() {
    let fixture = Fixture::empty();
    let layout = Layout::new(fixture.path("layout")).unwrap();
    let bytes = archive(&[file("a", b"content")]);
    let of_layer = |kind: &str, bytes: &[u8]| {
        let layer = layout.add(kind, bytes, "").unwrap();
        layout.index(&[layout.image("s390x", &[layer], "").unwrap()]).unwrap();
    };
    of_layer(LAYER, &bytes);
    let digest = &digest(&bytes);
    let blob = layout.0.join("blobs/sha256").join(digest);
    let fails = |message: &str| {
        let image = fixture.path("image");
        let outcome = ferofs!("build", &layout.0, &image).failure(1);
        outcome.says(message);
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
        of_layer(kind, content);
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
    let image = fixture.path("image");
    ferofs!("build --from=oci", &layout.0, &image).failure(1).says("oci-layout is missing");
    ferofs!("build", &layout.0, &image).failure(1).says("a part of an OCI image layout");
    // In a directory of an archive.
    let nested = fixture.path("nested");
    fs::write(&nested, archive(&[file("layout/index.json", b""), file("layout/oci-layout", b"")]))
        .unwrap();
    ferofs!("build", nested, image).success().says("first needs tar -C DIR -cf FILE .");
}

/// The parts of an archive that `docker save` wrote before version 25: configuration, layers, and
/// `manifest.json`.
struct DockerImage {
    members: Vec<Vec<u8>>,
    entry: String,
}

/// An image with these layers. `name` gives the members that a layer becomes, and its name in the
/// manifest.
fn docker_image(
    tag: &str,
    arch: &str,
    layers: &[Vec<u8>],
    name: impl Fn(usize, &[u8]) -> (Vec<Vec<u8>>, String),
) -> DockerImage {
    docker_image_with(tag, arch, layers, None, name)
}

/// The same, with this name of its configuration.
fn docker_image_with(
    tag: &str,
    arch: &str,
    layers: &[Vec<u8>],
    config_name: Option<&str>,
    name: impl Fn(usize, &[u8]) -> (Vec<Vec<u8>>, String),
) -> DockerImage {
    let diff_ids: Vec<_> =
        layers.iter().map(|layer| format!(r#""sha256:{}""#, digest(layer))).collect();
    let config = format!(
        r#"{{"architecture":"{arch}","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    );
    let digest_name = format!("{}.json", digest(config.as_bytes()));
    let config_name = config_name.unwrap_or(&digest_name);
    let mut members = Vec::new();
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let (added, name) = name(number, layer);
        members.extend(added);
        names.push(format!(r#""{name}""#));
    }
    members.push(file_of_any_name(config_name, config.as_bytes()));
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
    let Some(_) = need::tool("gzip") else { return };
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
        ferofs!("ls", image).success().text()
    };
    for (what, image, layers) in [
        ("directories", docker_image("a:1", "s390x", &layers[..2], in_directories), "kept\nnew\n"),
        ("links", docker_image("a:1", "s390x", &layers, linked), "gone\nkept\nnew\n"),
        ("podman", docker_image("a:1", "s390x", &layers[..2], flat), "kept\nnew\n"),
        ("crane", docker_image("a:1", "s390x", &layers[..2], compressed), "kept\nnew\n"),
    ] {
        let bytes = docker_archive(&[image]);
        fs::write(&tar, packed(&fixture, "gzip", &bytes)).unwrap();
        assert_eq!(shown(&[]), layers, "{what}, compressed");
        fs::write(&tar, bytes).unwrap();
        assert_eq!(shown(&[]), layers, "{what}");
    }
    // Names that other programs give: the manifest tells what they are.
    for (config, names) in [
        ("blobs/sha256/1", ["blobs/sha256/2.tar.gz", "blobs/sha256/3.tar.gz"]),
        ("blobs/sha256/1", ["blobs/sha256/2", "blobs/sha256/3"]),
        ("config.json", ["l0.tar", "l1.tar.gz"]),
        ("c.json", ["./a/layer.tar", "./b/layer.tar"]),
    ] {
        let name = |number: usize, layer: &[u8]| {
            let name: &str = names[number];
            let is_packed = name.ends_with("gz");
            let bytes = if is_packed { packed(&fixture, "gzip", layer) } else { layer.to_vec() };
            (vec![file_of_any_name(name, &bytes)], name.to_owned())
        };
        let image = docker_image_with("a:1", "s390x", &layers[..2], Some(config), name);
        let manifest = file("manifest.json", format!("[{}]", image.entry).as_bytes());
        for manifest_at in [0, image.members.len()] {
            let mut members = image.members.clone();
            members.insert(manifest_at, manifest.clone());
            fs::write(&tar, archive(&members)).unwrap();
            assert_eq!(shown(&[]), "kept\nnew\n", "{names:?}");
        }
    }
    // A pipe cannot be read twice, so a warning says what it is.
    let piped = |options: &str| {
        let line = format!(
            "cat {} | $0 build {options} - {}",
            tar.display(),
            fixture.path("piped").display()
        );
        run!("sh -c", &line, ferofs_tests::run::ferofs_path()).run()
    };
    piped("").success().says("an archive of a container image");
    piped("--strict --force").failure(1);
    piped("--strict --force --from oci").success();
    piped("--strict --force --image-name=a:1").success();
    piped("--force --platform=linux/mips").failure(1).says("no image for linux/mips");
    piped("--force --from=tar --image-name=a:1")
        .failure(2)
        .says("select an image of an OCI image layout");
    assert!(shown(&["--from=tar"]).contains("manifest.json"));
    // The unpacked archive.
    let unpacked = fixture.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    run!("tar -xf", &tar, "-C", &unpacked).success();
    ferofs!("build", &unpacked, fixture.path("no"))
        .failure(1)
        .says("make an archive of them with tar");
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
        ferofs!("build").args(options).args([&tar, &fixture.path("no")]).failure(1).says(message);
    }
}

#[test]
fn damaged_archives_of_docker_save_are_refused() {
    let fixture = Fixture::empty();
    let tar = fixture.path("docker.tar");
    let fails = |bytes: &[u8], message: &str| {
        fs::write(&tar, bytes).unwrap();
        let outcome = ferofs!("build", &tar, fixture.path("no")).failure(1);
        outcome.says(message);
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
    fixture.write("version", "Directory Transport Version: 1.1\n");
    let image = fixture.path("image");
    ferofs!("build", fixture.source(), image.clone())
        .failure(1)
        .says("skopeo copy dir:DIR oci:LAYOUT");
    ferofs!("build --from=dir", fixture.source(), image.clone()).success();
    for (name, message) in [
        ("docker://alpine", "skopeo copy NAME oci:LAYOUT"),
        ("oci:layout:latest", "give the path that follows"),
        ("oci://registry/image:tag", "ferofs pull"),
    ] {
        let outcome = ferofs!("build", name, &image).failure(1);
        outcome.says(message);
    }
}
