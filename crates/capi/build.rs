//! Gives the shared library its soname, by which programs find it: the version up to which it stays
//! compatible.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libferofs.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
