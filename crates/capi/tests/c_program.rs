//! Compiles the example in C against the installed library, and compares what it prints with what
//! the Rust library reads.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ferofs_read::{FileType, Hex, Image};
use ferofs_tests::run::Run;
use ferofs_tests::{Outcome, need, scratch, tree};

/// Bytes of the buffer for values of xattrs in the example.
const VALUE: usize = 256;

/// An image of all kinds of inodes.
fn image(dir: &Path) -> PathBuf {
    let (source, image) = (dir.join("source"), dir.join("image"));
    std::fs::create_dir(&source).unwrap();
    tree::create(&source, &tree::Options::small()).unwrap();
    let mut options = ferofs_write::Options::new(source);
    options.data.compression = Some(ferofs_write::Compression::lz4(0).unwrap());
    ferofs_write::build(&options, &image).unwrap();
    image
}

/// Installs the library that cargo built for this test below `dir`.
fn install(dir: &Path) -> PathBuf {
    let prefix = dir.join("prefix");
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    ferofs_devtools::c_library::install(Path::new(env!("CARGO_MANIFEST_DIR")), &built, &prefix)
        .unwrap();
    prefix
}

fn sum(content: &[u8]) -> u64 {
    content.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// The output of the example for the directory at `path`.
fn list(image: &Image, path: &[u8], dir: ferofs_read::Nid, out: &mut Vec<u8>) {
    for entry in image.read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        let inode = image.metadata(entry.nid).unwrap();
        let mode = inode.file_type().mode_bits() | inode.permissions();
        let mut line = String::new();
        write!(line, "{mode:o} {}:{} {} ", inode.uid(), inode.gid(), inode.size()).unwrap();
        out.extend(line.into_bytes());
        let child = [path, b"/", &entry.name].concat();
        out.extend(&child);
        match inode.file_type() {
            FileType::Regular => {
                out.extend(format!(" sum {:x}", sum(&image.read(&inode).unwrap())).into_bytes())
            }
            FileType::Symlink => {
                out.extend([b" -> ".as_slice(), &image.read_link(&inode).unwrap()].concat())
            }
            _ => {}
        }
        for xattr in image.xattrs(&inode).unwrap() {
            let value = if xattr.value.len() > VALUE { &[] } else { xattr.value.as_slice() };
            // C prints a value up to its first NUL.
            let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
            out.extend([b" ", xattr.name.as_slice(), b"=", value].concat());
        }
        out.push(b'\n');
        if inode.is_dir() {
            list(image, &child, entry.nid, out);
        }
    }
}

#[test]
fn a_program_in_c_reads_all_of_an_image() {
    let (Some(cc), Some(pkg_config)) = (need::tool("cc"), need::tool("pkg-config")) else {
        return;
    };
    let dir = scratch::scratch();
    let (image, prefix) = (image(dir.path()), install(dir.path()));
    let flags = Run::new(pkg_config)
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(["--cflags", "--libs", "ferofs"])
        .success();
    let flags = String::from_utf8(flags.stdout).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/list.c");
    let compile = |program: &Path, libraries: &[&str]| {
        let warnings =
            ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"];
        let run = Run::new(&cc).args(warnings).arg("-o").arg(program).arg(&source).args(libraries);
        run.success();
    };
    let shared = dir.path().join("shared");
    compile(&shared, &flags.split_whitespace().collect::<Vec<_>>());
    let fixed = dir.path().join("static");
    let (include, archive) = (prefix.join("include"), prefix.join("lib/libferofs.a"));
    compile(
        &fixed,
        &["-I", include.to_str().unwrap(), archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"],
    );

    let opened = Image::open(std::fs::read(&image).unwrap()).unwrap();
    let mut listed = Vec::new();
    list(&opened, b"", opened.superblock().root, &mut listed);
    let message = b"error: no such file: no such file or directory\n";
    let expected = [listed.as_slice(), message, &listed].concat();
    let lib = prefix.join("lib");
    for program in [&shared, &fixed] {
        let printed = Run::new(program).env("LD_LIBRARY_PATH", &lib).arg(&image).success().stdout;
        assert!(printed == expected, "{}", String::from_utf8_lossy(&printed));
    }
    let broken = Run::new(&fixed).arg("/dev/null").run();
    assert_eq!(broken.code, 1);
    assert!(broken.stderr.contains("/dev/null: "), "{}", broken.stderr);
    if let Some(valgrind) = need::tool("valgrind") {
        let options =
            ["--quiet", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=99"];
        let run = Run::new(valgrind).args(options).arg(&fixed).arg(&image).success();
        assert!(run.stdout == expected && run.stderr.is_empty(), "{}", run.stderr);
    }
}

/// Calls `then` with a loop device of `file`, as root.
fn with_device(file: &Path, then: impl FnOnce(&Path)) {
    if !need::root() {
        return;
    }
    let Some(losetup) = need::tool("losetup") else { return };
    let attached = Run::new(&losetup).args(["--find", "--show"]).arg(file).success();
    let device = PathBuf::from(String::from_utf8(attached.stdout).unwrap().trim());
    then(&device);
    Run::new(&losetup).arg("-d").arg(device).success();
}

#[test]
fn a_program_in_c_applies_a_delta() {
    let Some(cc) = need::tool("cc") else { return };
    let dir = scratch::scratch();
    let prefix = install(dir.path());
    let [old, new, delta, out, program] =
        ["old", "new", "delta", "out", "apply_delta"].map(|name| dir.path().join(name));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/apply_delta.c");
    let flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-I"];
    let compile =
        Run::new(cc).args(flags).arg(prefix.join("include")).arg(&source).arg("-o").arg(&program);
    compile.arg(prefix.join("lib/libferofs.a")).args(["-lpthread", "-ldl", "-lm"]).success();

    let mut content: Vec<u8> =
        (0..700_000_u32).map(|at| (at / 7 % 251 * (at % 13)) as u8).collect();
    for path in [&old, &new] {
        let mut builder = ferofs_write::Builder::new();
        builder.options().data.compression = Some(ferofs_write::Compression::lz4(0).unwrap());
        let attributes = ferofs_write::Attributes::default();
        builder.file("file", ferofs_write::Content::bytes(content.clone()), attributes);
        builder.build(path).unwrap();
        content[300_000..].rotate_left(5);
    }
    let options = ferofs_write::incremental::DeltaOptions::default();
    ferofs_write::incremental::create_delta(&old, &new, &options, &delta).unwrap();
    let bytes = std::fs::read(&delta).unwrap();
    let opened = ferofs_update::Delta::read(&bytes[..]).unwrap();
    let (digest, memory) = (Hex(&opened.digest()).to_string(), opened.header().memory);

    let apply = |old: &Path, memory: u64, digest: &str, delta: &[u8]| {
        let input = dir.path().join("input");
        std::fs::write(&input, delta).unwrap();
        let run = Run::new(&program).arg(old).arg(&out).arg(memory.to_string()).arg(digest);
        run.input(std::fs::File::open(&input).unwrap()).run()
    };
    let refused = |outcome: Outcome, reason: &str| {
        assert!(
            outcome.code == 1 && outcome.stderr.contains(reason),
            "{reason}: {}",
            outcome.stderr
        );
    };
    refused(apply(&old, memory - 1, &digest, &bytes), "bytes of memory, and the limit is");
    refused(
        apply(&old, 0, &"0".repeat(digest.len()), &bytes),
        "not accepted (Operation not permitted)",
    );
    refused(apply(&old, 0, &digest, &bytes[..100]), "(Structure needs cleaning)");
    refused(apply(&old, 0, &digest, b"no delta"), "not a delta of ferofs");
    assert!(!out.exists(), "a refused delta made a file");
    refused(apply(&new, 0, &digest, &bytes), "(Stale file handle)");
    assert_eq!(std::fs::read(&out).unwrap(), b"", "bytes from another old image were written");
    refused(apply(&old, 0, &digest, &bytes[..bytes.len() - 9]), "(Structure needs cleaning)");
    apply(&old, memory, &digest, &bytes).success();
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&new).unwrap());
    // What NEW had is lost only if OLD is right; a longer file ends with the new image.
    std::fs::write(&out, vec![7; 3 << 20]).unwrap();
    refused(apply(&new, 0, &digest, &bytes), "(Stale file handle)");
    assert!(
        std::fs::read(&out).unwrap() == vec![7; 3 << 20],
        "another old image cost the other slot"
    );
    apply(&old, 0, &digest, &bytes).success();
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&new).unwrap());
    with_device(&old, |slot| {
        apply(slot, 0, &digest, &bytes).success();
        assert!(std::fs::read(&out).unwrap() == std::fs::read(&new).unwrap());
        // The other slot is too small.
        let small = dir.path().join("small");
        std::fs::write(&small, vec![0; 4096]).unwrap();
        with_device(&small, |small| {
            std::fs::remove_file(&out).unwrap();
            std::os::unix::fs::symlink(small, &out).unwrap();
            refused(apply(slot, 0, &digest, &bytes), "not accepted (No space left on device)");
        });
    });
    let _ = std::fs::remove_file(&out);
    if let Some(valgrind) = need::tool("valgrind") {
        let options =
            ["--quiet", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=99"];
        let run = Run::new(valgrind).args(options).arg(&program).arg(&old).arg(&out).arg("0");
        run.input(std::fs::File::open(&delta).unwrap()).success();
        assert!(std::fs::read(&out).unwrap() == std::fs::read(&new).unwrap());
    }
    // A failed write gives the errno of the program's function.
    let _ = std::fs::remove_file(&out);
    std::os::unix::fs::symlink("/dev/full", &out).unwrap();
    refused(apply(&old, 0, &digest, &bytes), "No space left on device");
}

#[test]
fn the_program_of_the_guide_prints_a_file() {
    let Some(cc) = need::tool("cc") else { return };
    let dir = scratch::scratch();
    let prefix = install(dir.path());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/programs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, code) = page.split_once("```c\n").unwrap();
    let [source, program, image] = ["main.c", "main", "image"].map(|name| dir.path().join(name));
    std::fs::write(&source, code.split_once("```").unwrap().0).unwrap();
    let flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"];
    let compile =
        Run::new(cc).args(flags).arg(prefix.join("include")).arg(&source).arg("-o").arg(&program);
    compile.arg(prefix.join("lib/libferofs.a")).args(["-lpthread", "-ldl", "-lm"]).success();
    let mut builder = ferofs_write::Builder::new();
    let attributes = ferofs_write::Attributes::default();
    builder.file("etc/hostname", ferofs_write::Content::bytes("example\n"), attributes);
    builder.build(&image).unwrap();
    assert_eq!(Run::new(&program).arg(&image).success().stdout, b"example\n");
    let missing = Run::new(&program).arg(dir.path().join("missing")).run();
    assert!(missing.code == 1 && missing.stderr.contains("No such file"), "{}", missing.stderr);
}
