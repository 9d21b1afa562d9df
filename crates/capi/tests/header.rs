//! Compares include/ferofs.h with what cbindgen makes of this crate.

use std::path::Path;

/// Set this variable to write the header anew.
const UPDATE: &str = "FEROFS_UPDATE_HEADER";

#[test]
fn the_header_is_that_of_the_source() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = dir.join("include/ferofs.h");
    let mut made = Vec::new();
    cbindgen::generate(dir).unwrap().write(&mut made);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let stored = std::fs::read(&path).unwrap_or_default();
    assert!(
        String::from_utf8_lossy(&stored) == String::from_utf8_lossy(&made),
        "{} is old: `{UPDATE}=1 cargo test -p ferofs-capi` writes it anew",
        path.display()
    );
}
