//! The systems that experiments compare: how each makes its image, and which driver mounts the image.

use std::fmt::{self, Display, Formatter};

use crate::common::filesystem::Driver;

/// The tool that makes an image, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageFormat {
    Ferofs(String),
    MkfsErofs(String),
    Squashfs(String),
    /// With the name of its compression algorithm.
    Btrfs(&'static str),
    Ext4,
}

impl ImageFormat {
    /// A file name that differs for each format.
    pub(super) fn file_name(&self) -> String {
        let (kind, options) = match self {
            Self::Ferofs(options) => ("ferofs", options.as_str()),
            Self::MkfsErofs(options) => ("erofs", options.as_str()),
            Self::Squashfs(options) => ("squashfs", options.as_str()),
            Self::Btrfs(algorithm) => ("btrfs", *algorithm),
            Self::Ext4 => ("ext4", ""),
        };
        let file_char = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!("{}.{kind}", options.chars().map(file_char).collect::<String>())
    }
}

/// One of the compared systems: an image format and the driver that mounts the image.
#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) format: ImageFormat,
    pub(crate) driver: Driver,
}

impl Display for System {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl System {
    pub(crate) fn new(name: impl Into<String>, format: &ImageFormat, driver: Driver) -> Self {
        Self { name: name.into(), format: format.clone(), driver }
    }
}

/// EROFS as in the paper: LZ4HC with clusters of 4 KiB.
pub(crate) fn erofs() -> ImageFormat {
    ImageFormat::Ferofs("--preset android".into())
}

/// squashfs with LZ4HC.
pub(crate) fn squashfs(block: &str) -> ImageFormat {
    ImageFormat::Squashfs(format!("-comp lz4 -Xhc -b {block}"))
}

/// All systems: those that compress, and ext4 for comparison.
pub(crate) fn systems() -> Vec<System> {
    let mut all = vec![
        System::new("ferofs (FUSE)", &erofs(), Driver::Ferofs(&[])),
        System::new("EROFS (kernel)", &erofs(), Driver::Kernel("erofs")),
        System::new("erofsfuse", &erofs(), Driver::Erofsfuse),
    ];
    for block in ["4K", "8K", "16K", "128K"] {
        let name = format!("squashfs {block} (kernel)");
        all.push(System::new(name, &squashfs(block), Driver::Kernel("squashfs")));
    }
    all.push(System::new("squashfuse 128K", &squashfs("128K"), Driver::Squashfuse));
    for algorithm in ["lzo", "zstd"] {
        let name = format!("btrfs {algorithm} (kernel)");
        all.push(System::new(name, &ImageFormat::Btrfs(algorithm), Driver::Kernel("btrfs")));
    }
    all.push(System::new("ext4 (kernel)", &ImageFormat::Ext4, Driver::Kernel("ext4")));
    all
}

/// The systems that matter most, for experiments with many cases.
pub(crate) fn main_systems() -> Vec<System> {
    let main = ["ferofs (FUSE)", "EROFS (kernel)", "erofsfuse", "squashfs 128K (kernel)", "ext4 (kernel)"];
    systems().into_iter().filter(|system| main.contains(&system.name.as_str())).collect()
}
