//! The static programs: `ferofs`, and `ferofs-device` for devices.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::shell;

use super::source::Version;
use crate::processor::Processor;

/// Bytes of the program for devices at most: their flash memory is small. A larger one is no
/// release.
const DEVICE_MAX: u64 = 2_500_000;

/// The programs of a processor.
pub(super) struct Programs {
    pub(super) ferofs: PathBuf,
    pub(super) device: PathBuf,
}

/// Builds the programs for `target`, which is one of `processor`, from `sources`, with cargo's
/// files in `work`.
pub(super) fn build(
    processor: &Processor,
    target: &str,
    sources: &Path,
    work: &Path,
    version: &Version,
) -> Result<Programs> {
    processor.install(target)?;
    let build_dir = work.join("build");
    let home = cargo_home()?;
    // Paths of this machine are in panic messages and in `assert` of C code.
    let paths = [(sources, "/ferofs"), (&home, "/cargo"), (&build_dir, "/build")];
    let map =
        |option: &str| paths.map(|(path, name)| format!("{option}={}={name}", path.display()));
    let mut rust_flags = map("--remap-path-prefix").to_vec();
    rust_flags.push("-Ctarget-feature=+crt-static".to_owned());
    // musl does not have the functions that some distributions' compilers call with this.
    let c_flags = format!("{} -U_FORTIFY_SOURCE", map("-ffile-prefix-map").join(" "));
    let program = |name: &str, package: &str, profile: &str| {
        let mut cargo = shell::cargo();
        cargo
            .args(["build", "--locked", "--profile", profile, "--package", package])
            .current_dir(sources)
            .env("CARGO_TARGET_DIR", &build_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", rust_flags.join("\x1f"))
            .env("CFLAGS", &c_flags)
            .env("SOURCE_DATE_EPOCH", version.time.to_string())
            .env_remove("RUSTFLAGS");
        processor.set_target(&mut cargo, target);
        shell::run(&mut cargo)?;
        let path = build_dir.join(target).join(profile).join(name);
        check_static(&path)?;
        Ok::<_, anyhow::Error>(path)
    };
    let ferofs = program("ferofs", "ferofs-cli", "dist")?;
    let device = program("ferofs-device", "ferofs-device", "small")?;
    check_size(&device, DEVICE_MAX)?;
    Ok(Programs { ferofs, device })
}

/// Fails if the program asks for a dynamic loader.
fn check_static(program: &Path) -> Result<()> {
    let headers =
        Command::new("readelf").args(["--wide", "--program-headers"]).arg(program).output();
    let headers = headers.context("starting readelf")?;
    let text = String::from_utf8_lossy(&headers.stdout);
    if !headers.status.success() || !text.contains("LOAD") || text.contains("INTERP") {
        bail!(
            "{}: not a static program: {}",
            program.display(),
            String::from_utf8_lossy(&headers.stderr)
        );
    }
    Ok(())
}

/// Fails if the program has more bytes than `max`.
fn check_size(program: &Path, max: u64) -> Result<()> {
    let size = std::fs::metadata(program).with_context(|| program.display().to_string())?.len();
    if size > max {
        bail!("{}: {size} bytes, and at most {max} are for devices", program.display());
    }
    Ok(())
}

fn cargo_home() -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(env::home_dir()?.join(".cargo")))
        .context("neither $CARGO_HOME nor a home directory")
}

#[cfg(test)]
mod tests {
    use ferofs_tests::need;

    use super::*;

    #[test]
    fn large_programs_are_refused() {
        let own = env::current_exe().unwrap();
        let size = std::fs::metadata(&own).unwrap().len();
        assert!(check_size(&own, size).is_ok());
        assert!(check_size(&own, size - 1).is_err());
    }

    #[test]
    fn this_test_is_dynamic() {
        if need::tool("readelf").is_some() {
            let is_static = check_static(&env::current_exe().unwrap()).is_ok();
            assert_eq!(is_static, cfg!(target_feature = "crt-static"));
            assert!(check_static(Path::new("/etc/passwd")).is_err());
        }
    }
}
