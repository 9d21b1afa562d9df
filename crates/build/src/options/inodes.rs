//! How inodes are stored. Source: FORMAT.md 3.

/// The on-disk form of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InodeForm {
    /// Compact (32 bytes) where the fields fit, else extended (64 bytes).
    #[default]
    Smallest,
    /// Always compact, without a modification time of its own. An inode whose fields do not fit is an error.
    Compact,
    /// Always extended.
    Extended,
}

/// How inodes are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InodeOptions {
    /// Compact or extended.
    pub form: InodeForm,
    /// Use an extended inode if a compact one cannot store the modification time; otherwise the file gets the build time.
    pub keep_mtime: bool,
    /// Store the last bytes of regular files, and whole small files, after their inode. Turn this off for DAX, which cannot map
    /// such data.
    pub inline_data: bool,
    /// Directories have no `.` entry (`dot-omitted`; Linux 6.15).
    pub dot_omitted: bool,
}

impl Default for InodeOptions {
    fn default() -> Self {
        Self { form: InodeForm::Smallest, keep_mtime: true, inline_data: true, dot_omitted: false }
    }
}
