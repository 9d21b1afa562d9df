//! The processors for which this machine compiles, and whose instructions QEMU translates.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ferofs_devtools::{install, shell};
use ferofs_tests::need;
use ferofs_tests::tools::Tool;

/// Compiles C code for musl on this machine's processor.
const MUSL: Tool = Tool { program: "musl-gcc", package: "musl-tools" };

/// A processor, with the names that Rust and Debian give to it.
#[derive(Clone, Copy)]
pub(crate) struct Processor {
    pub(crate) name: &'static str,
    /// The target of rustc with glibc.
    pub(crate) target: &'static str,
    /// The names in releases, if there are releases for it.
    pub(crate) release: Option<Release>,
    /// The prefix of Debian's compiler, and the directory of its C library below /usr.
    tools: &'static str,
    /// Debian's compiler, and its C library.
    compiler: Tool,
    library: &'static str,
    emulator: Tool,
}

/// The names that a processor has in releases.
#[derive(Clone, Copy)]
pub(crate) struct Release {
    /// The target of rustc with musl, whose programs need nothing of the system.
    pub(crate) target: &'static str,
    /// Debian's name.
    pub(crate) debian: &'static str,
    /// The name of rpm.
    pub(crate) rpm: &'static str,
}

macro_rules! processor {
    ($name:literal, $target:literal, $tools:literal, $compiler:literal, $library:literal, $emulator:literal, $release:expr) => {
        Processor {
            name: $name,
            target: $target,
            release: $release,
            tools: $tools,
            compiler: Tool { program: concat!($tools, "-gcc"), package: $compiler },
            library: $library,
            emulator: Tool {
                program: concat!("qemu-", $emulator, "-static"),
                package: "qemu-user-static",
            },
        }
    };
}

const fn released(
    target: &'static str,
    debian: &'static str,
    rpm: &'static str,
) -> Option<Release> {
    Some(Release { target, debian, rpm })
}

/// With 32 bits: armv7 and i686. Big-endian: s390x.
#[rustfmt::skip]
pub(crate) const PROCESSORS: [Processor; 7] = [
    processor!("x86_64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross", "x86_64", released("x86_64-unknown-linux-musl", "amd64", "x86_64")),
    processor!("aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "aarch64", released("aarch64-unknown-linux-musl", "arm64", "aarch64")),
    processor!("armv7", "armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf", "gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross", "arm", None),
    processor!("riscv64", "riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "riscv64", None),
    processor!("i686", "i686-unknown-linux-gnu", "i686-linux-gnu", "gcc-i686-linux-gnu", "libc6-dev-i386-cross", "i386", None),
    processor!("powerpc64le", "powerpc64le-unknown-linux-gnu", "powerpc64le-linux-gnu", "gcc-powerpc64le-linux-gnu", "libc6-dev-ppc64el-cross", "ppc64le", None),
    processor!("s390x", "s390x-unknown-linux-gnu", "s390x-linux-gnu", "gcc-s390x-linux-gnu", "libc6-dev-s390x-cross", "s390x", None),
];

/// Those of `processors` with these names, or all without names.
pub(crate) fn choose(
    processors: impl Iterator<Item = Processor>,
    names: &[&str],
) -> Result<Vec<Processor>> {
    let all: Vec<Processor> = processors.collect();
    if let Some(name) = names.iter().find(|name| all.iter().all(|it| it.name != **name)) {
        let known: Vec<&str> = all.iter().map(|it| it.name).collect();
        bail!("there is no processor {name}; there are {}", known.join(", "));
    }
    Ok(all.into_iter().filter(|it| names.is_empty() || names.contains(&it.name)).collect())
}

impl Processor {
    /// Whether it is that of this machine.
    pub(crate) fn is_own(&self) -> bool {
        self.name == env::consts::ARCH
    }

    /// Installs what compiles for `target`, one of this processor, and what runs the programs.
    pub(crate) fn install(&self, target: &str) -> Result<()> {
        let library = Path::new("/usr").join(self.tools).join("include");
        if self.is_own() {
            install::install(&[MUSL])?;
        } else {
            install::install(&[self.compiler, self.emulator])?;
            if !library.exists() {
                install::install_package(self.library)?;
            }
        }
        if !has_target(target)? {
            if need::find_tool("rustup").is_none() {
                bail!("rustup is missing, which installs Rust's standard library for {target}");
            }
            shell::run(Command::new("rustup").args(["target", "add", target]))?;
        }
        Ok(())
    }

    /// Lets cargo compile for `target`, one of this processor. Also for musl the compiler of
    /// another processor has the headers of glibc: C code of libraries uses little more than
    /// memory, and what musl does not have, the linker does not find.
    pub(crate) fn set_target(&self, cargo: &mut Command, target: &str) {
        cargo.args(["--target", target]);
        if !self.is_own() {
            let name = target.replace('-', "_");
            cargo
                .env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), self.compiler.program)
                .env(format!("CC_{name}"), self.compiler.program)
                .env(format!("AR_{name}"), format!("{}-ar", self.tools));
        }
    }

    /// The command line that starts `program`, which is one of this processor.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut words = self.emulator().into_iter().map(PathBuf::from).chain([program.to_owned()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// The emulator, which needs no other file; `None` for this machine's processor.
    pub(crate) fn emulator_program(&self) -> Option<PathBuf> {
        if self.is_own() { None } else { need::find_tool(self.emulator.program) }
    }

    /// The emulator with its arguments; nothing for this machine's processor.
    pub(crate) fn emulator(&self) -> Vec<String> {
        if self.is_own() {
            return Vec::new();
        }
        vec![self.emulator.program.into(), "-L".into(), format!("/usr/{}", self.tools)]
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_chosen_by_name() {
        let names = |names: &[&str]| choose(PROCESSORS.into_iter(), names).map(|all| all.len());
        assert_eq!(
            (names(&[]).unwrap(), names(&["armv7", "s390x"]).unwrap()),
            (PROCESSORS.len(), 2)
        );
        assert!(names(&["vax"]).unwrap_err().to_string().ends_with("i686, powerpc64le, s390x"));
    }
}
