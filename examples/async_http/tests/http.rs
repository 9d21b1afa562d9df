//! Runs the example against nginx.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use ferofs_tests::run::Run;
use ferofs_tests::scratch;
use ferofs_tests::web::Server;

#[test]
fn files_are_read_by_range_requests() {
    let dir = scratch::scratch();
    let (source, root) = (dir.path().join("source"), dir.path().join("root"));
    std::fs::create_dir_all(source.join("docs")).unwrap();
    std::fs::create_dir(&root).unwrap();
    let wanted: String = (0..400_000).map(|line| format!("line {line}\n")).collect();
    std::fs::write(source.join("docs/wanted"), &wanted).unwrap();
    std::fs::write(source.join("other"), vec![7; 100]).unwrap();
    std::fs::write(
        source.join("unwanted"),
        (0..9_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    let mut options = ferofs_write::Options::new(source);
    options.data.compression = Some(ferofs_write::Compression::lz4(0).unwrap());
    let image = root.join("image.erofs");
    ferofs_write::build(&options, &image).unwrap();
    let Some(server) = Server::nginx(dir.path(), &root, ["", ""]) else {
        return;
    };

    let example = |arguments: &[&str]| {
        Run::new(env!("CARGO_BIN_EXE_ferofs-async-http-example"))
            .arg(&server.address)
            .args(arguments)
            .run()
    };
    let list = example(&["/image.erofs"]).success();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(
        list.contains(&format!("{:>10} /docs/wanted\n", wanted.len()))
            && list.contains("/unwanted\n"),
        "{list}"
    );
    let file = example(&["/image.erofs", "docs/wanted"]).success();
    assert!(file.stdout == wanted.as_bytes());
    let fetched: u64 = file.stderr.split(' ').next().unwrap().parse().unwrap();
    let size = std::fs::metadata(&image).unwrap().len();
    assert!(fetched < size / 2, "{fetched} of {size} bytes were fetched: {}", file.stderr);
    assert_eq!(example(&["/missing"]).code, 1);
    assert_eq!(example(&["/image.erofs", "missing"]).code, 1);
}
