//! Libraries in `LD_PRELOAD` (fakeroot, fakechroot, pseudo) show a process other owners, types and
//! attributes of files. They see calls of libc only. So files of the system are read and written
//! with functions that these libraries replace, and a program that has not loaded the one that the
//! environment asks for refuses to work.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::sync::LazyLock;

/// The libraries, by a part of the name of their file.
const LIBRARIES: [&str; 3] = ["libfakeroot", "libfakechroot", "libpseudo"];

/// Whether such a library may be loaded. Then descriptors come only from calls that it sees, and
/// files are named by directory and name: it does not know a path in `/proc`.
pub fn has_preload() -> bool {
    static ACTIVE: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("LD_PRELOAD").is_some_and(|list| !list.is_empty()));
    *ACTIVE
}

/// Fails if the environment asks for one of these libraries and the program cannot have it: it
/// would see the real owners and types.
///
/// # Errors
/// The reason why it cannot have it.
pub fn check_preload() -> Result<(), PreloadError> {
    refuse(cfg!(target_feature = "crt-static"), |name| std::env::var_os(name))
}

fn refuse(
    is_static: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), PreloadError> {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
    let list = variable("LD_PRELOAD").unwrap_or_default();
    let is_listed = LIBRARIES.iter().any(|library| list.to_string_lossy().contains(library));
    let is_pseudo = is_set("PSEUDO_PREFIX")
        && !is_set("PSEUDO_DISABLED")
        && variable("PSEUDO_UNLOAD").is_none();
    let is_wanted = is_listed || is_set("FAKEROOTKEY") || is_pseudo;
    match (is_wanted, is_static, is_listed) {
        (true, true, _) => Err(PreloadError::StaticProgram),
        (true, false, false) => Err(PreloadError::Lost),
        _ => Ok(()),
    }
}

/// Why a program cannot see what these libraries show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PreloadError {
    /// Below one of these libraries, in a program that is linked statically.
    #[error(
        "this static program does not see the owners, types and attributes that fakeroot, fakechroot and pseudo show \
         (LD_PRELOAD, FAKEROOTKEY or PSEUDO_PREFIX is set); use a ferofs that is linked with libc.so, such as the Debian \
         package's, or run this one outside of them"
    )]
    StaticProgram,
    /// Below fakeroot or pseudo, in a program that has not loaded their library.
    #[error(
        "FAKEROOTKEY or PSEUDO_PREFIX is set, but LD_PRELOAD does not name the library of fakeroot or pseudo: the real owners, \
         types and attributes would be used; keep LD_PRELOAD, or unset the other variable"
    )]
    Lost,
}
