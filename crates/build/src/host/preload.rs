//! Libraries in `LD_PRELOAD` that show a process other owners, types and attributes of files: fakeroot, fakechroot, pseudo.
//!
//! They see calls of libc only. So files of the system are read and written with functions that these libraries replace, and
//! a program that has not loaded the one that the environment asks for refuses to work.

use std::ffi::OsString;
use std::sync::LazyLock;

use crate::error::{Error, Result};

/// The libraries, by a part of the name of their file.
const LIBRARIES: [&str; 3] = ["libfakeroot", "libfakechroot", "libpseudo"];

/// Whether such a library may be loaded. Then descriptors come only from calls that it sees, and files are named by directory
/// and name: it does not know a path in `/proc`.
pub fn is_active() -> bool {
    static ACTIVE: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("LD_PRELOAD").is_some_and(|list| !list.is_empty()));
    *ACTIVE
}

/// Fails if the environment asks for one of these libraries and the program cannot have it: it would see the real owners and types.
///
/// # Errors
/// [`Error::StaticProgram`], [`Error::PreloadLost`].
pub fn check() -> Result<()> {
    refuse(cfg!(target_feature = "crt-static"), |name| std::env::var_os(name))
}

fn refuse(is_static: bool, variable: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
    let list = variable("LD_PRELOAD").unwrap_or_default();
    let is_listed = LIBRARIES.iter().any(|library| list.to_string_lossy().contains(library));
    let is_pseudo =
        is_set("PSEUDO_PREFIX") && !is_set("PSEUDO_DISABLED") && variable("PSEUDO_UNLOAD").is_none();
    let is_wanted = is_listed || is_set("FAKEROOTKEY") || is_pseudo;
    match (is_wanted, is_static, is_listed) {
        (true, true, _) => Err(Error::StaticProgram),
        (true, false, false) => Err(Error::PreloadLost),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(is_static: bool, set: &[(&str, &str)]) -> Option<Error> {
        let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        refuse(is_static, value).err()
    }

    #[test]
    fn a_program_that_lost_the_library_refuses() {
        let lost = |set: &[(&str, &str)]| matches!(refusal(false, set), Some(Error::PreloadLost));
        assert!(lost(&[("FAKEROOTKEY", "1877")]));
        assert!(lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libjemalloc.so")]));
        assert!(lost(&[("PSEUDO_PREFIX", "/usr")]));
        assert!(!lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libfakeroot-sysv.so")]));
        assert!(!lost(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
        assert!(!lost(&[]));
    }

    #[test]
    fn a_static_program_refuses_to_work_below_these_libraries() {
        let refused = |set: &[(&str, &str)]| matches!(refusal(true, set), Some(Error::StaticProgram));
        assert!(refused(&[("FAKEROOTKEY", "1877")]));
        assert!(refused(&[("LD_PRELOAD", "libfakeroot-sysv.so")]));
        assert!(refused(&[("LD_PRELOAD", "/lib/libm.so /usr/lib/pseudo/libpseudo.so")]));
        assert!(refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "0")]));
        assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
        assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_UNLOAD", "1")]));
        assert!(!refused(&[("LD_PRELOAD", "libjemalloc.so")]));
        assert!(!refused(&[("FAKEROOTKEY", "")]));
        assert!(!refused(&[]));
    }
}
