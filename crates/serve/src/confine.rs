//! Takes from the process that fetches what it does not need: it reads answers of servers, which
//! may be hostile.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Files that name resolution and TLS read: configuration, libraries, certificates.
const SYSTEM: [&str; 6] = ["/etc", "/usr", "/lib", "/lib64", "/run/systemd/resolve", "/dev/null"];

/// Confines this process, which has one thread yet: it can write to `cache` only, and read
/// `readable` and the system's configuration and libraries. It can execute nothing, and has no
/// capability. The network stays. Returns false if the kernel has no Landlock.
///
/// # Errors
/// The errors of Landlock and of prctl(2).
pub fn confine(
    cache: &Path,
    readable: &[PathBuf],
) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    rustix::thread::set_no_new_privs(true)?;
    let status = restrict(cache, readable)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(status != RulesetStatus::NotEnforced)
}

fn restrict(cache: &Path, readable: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V6;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(abi))?.create()?;
    // Not what executes, makes devices, or controls them.
    let special = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    ruleset = allow(ruleset, cache, AccessFs::from_all(abi) & !special)?;
    for path in SYSTEM.iter().map(Path::new).chain(readable.iter().map(PathBuf::as_path)) {
        ruleset = allow(ruleset, path, read)?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Allows access to a folder or a file, if it is there.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(ruleset) };
    // Rights of folders do not fit files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V6) };
    ruleset.add_rule(PathBeneath::new(opened, access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cache_can_be_written_and_nothing_else_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, other) = (folder.path().join("cache"), folder.path().join("other"));
        std::fs::create_dir(&cache).unwrap();
        std::fs::write(&other, "secret").unwrap();
        // A thread cannot remove its restrictions.
        let confined = std::thread::spawn(move || {
            let is_confined = confine(&cache, &[]).unwrap();
            let written = std::fs::write(cache.join("new"), "x")
                .and_then(|()| std::fs::remove_file(cache.join("new")));
            let run = std::process::Command::new("/bin/true").status().is_ok();
            (
                is_confined,
                written.is_ok(),
                std::fs::read(&other).is_ok(),
                std::fs::read("/etc/hosts").is_ok(),
                run,
            )
        });
        let (is_confined, written, read, hosts, run) = confined.join().unwrap();
        assert!(written && hosts);
        if is_confined {
            assert!(!read && !run);
        }
    }
}
