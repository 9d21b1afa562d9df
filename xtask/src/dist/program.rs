//! The static programs: `ferofs`, and `ferofs-device` for devices.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{install, shell};
use ferofs_tests::need;
use ferofs_tests::tools::Tool;

use super::source::Version;

/// Compiles C code for musl.
const MUSL: Tool = Tool { program: "musl-gcc", package: "musl-tools" };

/// The programs, and the target for which they were compiled.
pub(super) struct Programs {
    pub(super) ferofs: PathBuf,
    pub(super) device: PathBuf,
    pub(super) target: String,
}

/// Builds the programs from `sources`, with cargo's files in `work`.
pub(super) fn build(sources: &Path, work: &Path, version: &Version) -> Result<Programs> {
    let target = choose_target()?;
    let build_dir = work.join("build");
    let home = cargo_home()?;
    // Paths of this machine are in panic messages and in `assert` of C code.
    let paths = [(sources, "/ferofs"), (&home, "/cargo"), (&build_dir, "/build")];
    let map = |option: &str| paths.map(|(path, name)| format!("{option}={}={name}", path.display()));
    let mut rust_flags = map("--remap-path-prefix").to_vec();
    rust_flags.push("-Ctarget-feature=+crt-static".to_owned());
    let program = |name: &str, package: &str, profile: &str| {
        let mut cargo = shell::cargo();
        cargo
            .args(["build", "--locked", "--profile", profile, "--package", package, "--target", &target])
            .current_dir(sources)
            .env("CARGO_TARGET_DIR", &build_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", rust_flags.join("\x1f"))
            .env("CFLAGS", map("-ffile-prefix-map").join(" "))
            .env("SOURCE_DATE_EPOCH", version.time.to_string())
            .env_remove("RUSTFLAGS");
        shell::run(&mut cargo)?;
        let path = build_dir.join(&target).join(profile).join(name);
        check_static(&path)?;
        Ok::<_, anyhow::Error>(path)
    };
    let ferofs = program("ferofs", "ferofs-cli", "dist")?;
    let device = program("ferofs-device", "ferofs-device", "small")?;
    Ok(Programs { ferofs, device, target })
}

/// Fails if the program asks for a dynamic loader.
fn check_static(program: &Path) -> Result<()> {
    let headers = Command::new("readelf").args(["--wide", "--program-headers"]).arg(program).output();
    let headers = headers.context("starting readelf")?;
    let text = String::from_utf8_lossy(&headers.stdout);
    if !headers.status.success() || !text.contains("LOAD") || text.contains("INTERP") {
        bail!("{}: not a static program: {}", program.display(), String::from_utf8_lossy(&headers.stderr));
    }
    Ok(())
}

/// The target with musl, whose programs need nothing of the system. If rustup cannot install it, the target of this machine: the programs then
/// contain glibc.
fn choose_target() -> Result<String> {
    let musl = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let glibc = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    if !has_target(&musl)? && need::find_tool("rustup").is_some() {
        // Without it, the other target is used, which a message says.
        let _ = shell::run(Command::new("rustup").args(["target", "add", &musl]));
    }
    if has_target(&musl)? && install::install(&[MUSL]).is_ok() {
        return Ok(musl);
    }
    eprintln!("the programs contain glibc: the Rust target {musl} or {} is missing", MUSL.program);
    Ok(glibc)
}

/// Whether the standard library for `target` is installed.
fn has_target(target: &str) -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(shell::repository())
        .output()
        .context("starting rustc")?;
    let dir = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    Ok(output.status.success() && dir.is_dir())
}

fn cargo_home() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("neither $CARGO_HOME nor a home directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_dynamic() {
        if need::tool("readelf", "the search for a dynamic loader").is_some() {
            let is_static = check_static(&env::current_exe().unwrap()).is_ok();
            assert_eq!(is_static, cfg!(target_feature = "crt-static"));
            assert!(check_static(Path::new("/etc/passwd")).is_err());
        }
    }
}
