//! Android's `fs_config` files: owner, group, mode and capabilities by path, one file a line.

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
    // The line is split from its end: only the path may have spaces, and the path of the root may be empty.
    let line = line.trim_ascii_end();
    let mut fields: Vec<&[u8]> = line.split(|b| *b == b' ' || *b == b'\t').collect();
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let mut capabilities = 0;
    while let Some(last) = fields.last() {
        let last = text(last)?;
        let Some((key, value)) = last.split_once('=') else { break };
        if key == "capabilities" {
            capabilities = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()?,
                None => value.parse().ok()?,
            };
        }
        fields.pop();
    }
    let permissions = u16::from_str_radix(&text(fields.pop()?)?, 8).ok().filter(|mode| *mode <= 0o7777)?;
    // Linux has no user 2^32 - 1.
    let id = |text: String| text.parse().ok().filter(|id| *id != u32::MAX);
    let gid = id(text(fields.pop()?)?)?;
    let uid = id(text(fields.pop()?)?)?;
    let path = fields.join(&b' ');
    let path = path.strip_prefix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(&path).to_vec();
    Some((path, FsEntry { uid, gid, permissions, capabilities }))
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
    fn capabilities_are_as_linux_has_them() {
        let value = capability_xattr(1 << 13);
        assert_eq!(value, [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
