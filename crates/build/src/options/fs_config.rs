//! Android's `fs_config` files: owner, group, mode and capabilities by path, one file a line. Lines of symbolic links may end with the
//! target, which is ignored, as Android's readers do.

use std::collections::HashMap;

/// A parsed `fs_config` file.
#[derive(Clone, Debug, Default)]
pub struct FsConfig(HashMap<Vec<u8>, FsEntry>);

/// The entry of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEntry {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// Permitted and effective capabilities of the program; 0 for none.
    pub capabilities: u64,
}

/// A malformed line of an `fs_config` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not a path, a user, a group, a mode in octal and perhaps capabilities=N")]
#[non_exhaustive]
pub struct FsConfigError {
    /// Its number, from 1.
    pub line: usize,
}

impl FsConfig {
    /// Reads the text of an `fs_config` file.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn parse(text: &[u8]) -> Result<Self, FsConfigError> {
        let mut entries = HashMap::new();
        for (number, line) in text.split(|b| *b == b'\n').enumerate() {
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (path, entry) = parse_line(line).ok_or(FsConfigError { line: number + 1 })?;
            entries.insert(path, entry);
        }
        Ok(Self(entries))
    }

    /// The entry of `path`, which has no leading slash. The root has an empty path, and may be in the file as an empty path or
    /// as `/`.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<FsEntry> {
        self.0
            .get(path.trim_ascii_start())
            .or_else(|| self.0.get(b"/".as_slice()).filter(|_| path.is_empty()))
            .copied()
    }
}

fn parse_line(line: &[u8]) -> Option<(Vec<u8>, FsEntry)> {
    let fields: Vec<&[u8]> = line.trim_ascii_end().split(|b| *b == b' ' || *b == b'\t').collect();
    // The numbers are the last three in a row: the path may have spaces, or be empty for the root, and other fields may follow.
    let (at, [uid, gid, permissions]) = (1..fields.len()).rev().find_map(|at| {
        let [uid, gid, mode] = fields.get(at..at + 3)? else { return None };
        let mode = number(mode, 8).filter(|mode| *mode <= 0o7777)?;
        // Linux has no user 2^32 - 1.
        let id = |field| number(field, 10).filter(|id| *id != u32::MAX);
        Some((at, [id(uid)?, id(gid)?, mode]))
    })?;
    let mut capabilities = 0;
    for value in fields[at + 3..].iter().filter_map(|field| field.strip_prefix(b"capabilities=")) {
        let value = std::str::from_utf8(value).ok()?;
        capabilities = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
    }
    let path = fields[..at].join(&b' ');
    let path = path.strip_prefix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(&path).to_vec();
    Some((path, FsEntry { uid, gid, permissions: permissions as u16, capabilities }))
}

fn number(field: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(field).ok()?, radix).ok()
}

/// The value of the attribute `security.capability` (revision 2) for these `capabilities`.
pub(crate) fn capability_xattr(capabilities: u64) -> Vec<u8> {
    const REVISION_2: u32 = 0x0200_0000;
    const EFFECTIVE: u32 = 1;
    let [low, high] = [capabilities as u32, (capabilities >> 32) as u32];
    [REVISION_2 | EFFECTIVE, low, 0, high, 0].into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_from_their_end() {
        let text =
            b"/ 0 0 0755\nsystem/bin/run-as 0 2000 0750 capabilities=0xc0\nsystem/a b 1 2 644 selabel=u:x\n";
        let config = FsConfig::parse(text).unwrap();
        assert_eq!(config.lookup(b"").unwrap().permissions, 0o755);
        let run_as = config.lookup(b"system/bin/run-as").unwrap();
        assert_eq!((run_as.gid, run_as.permissions, run_as.capabilities), (2000, 0o750, 0xc0));
        assert_eq!(config.lookup(b"system/a b").unwrap().uid, 1);
        assert_eq!(config.lookup(b"other"), None);
        assert_eq!(FsConfig::parse(b"ok 0 0 755\nbad 0 0\n").unwrap_err().line, 2);
        assert!(FsConfig::parse(b"bad 0 0 99999\n").is_err());
        assert!(FsConfig::parse(b"bad 4294967295 0 755\n").is_err());
    }

    #[test]
    fn the_target_of_a_link_is_ignored() {
        let text =
            b"system/etc/a 0 1 0644 /vendor/etc/a b\nsystem/a 1 0 0 644 capabilities=2 ../7 x\n 0 0 0755\n";
        let config = FsConfig::parse(text).unwrap();
        let link = config.lookup(b"system/etc/a").unwrap();
        assert_eq!((link.uid, link.gid, link.permissions, link.capabilities), (0, 1, 0o644, 0));
        assert_eq!(config.lookup(b"system/a 1").unwrap().capabilities, 2);
        assert_eq!(config.lookup(b"").unwrap().permissions, 0o755);
        assert!(FsConfig::parse(b"a 0 0 0644 capabilities=x\n").is_err());
        assert!(FsConfig::parse(b"a 0 0 link\n").is_err());
    }

    #[test]
    fn capabilities_are_as_linux_has_them() {
        let value = capability_xattr(1 << 13);
        assert_eq!(value, [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
