//! Mount options that are flags of the mount and not options of the file system (mount(8), "file-system-independent mount
//! options").

use rustix::mount::{MountAttrFlags, MountPropagationFlags};

/// The flags of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    /// For fsmount(2).
    pub(crate) attributes: MountAttrFlags,
    /// For mount(2), after the mount.
    pub(crate) propagation: Option<MountPropagationFlags>,
}

/// Options without effect on a read-only file system.
const NO_EFFECT: [&str; 15] = [
    "async",
    "sync",
    "dirsync",
    "lazytime",
    "nolazytime",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "rw",
    "ro",
    "relatime",
    "norelatime",
];

impl Flags {
    /// Splits `options` into flags and the options of EROFS and of security modules. The last of two opposite options
    /// wins.
    pub(crate) fn split(options: &[String]) -> (Self, Vec<&str>) {
        let mut flags = Self { attributes: MountAttrFlags::MOUNT_ATTR_RDONLY, propagation: None };
        let mut rest = Vec::new();
        for option in options {
            if let Some((attribute, on)) = attribute(option) {
                flags.attributes.set(attribute, on);
            } else if let Some(propagation) = propagation(option) {
                flags.propagation = Some(propagation);
            } else if !NO_EFFECT.contains(&option.as_str()) {
                rest.push(option.as_str());
            }
        }
        (flags, rest)
    }
}

fn attribute(option: &str) -> Option<(MountAttrFlags, bool)> {
    Some(match option {
        "nosuid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, true),
        "suid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, false),
        "nodev" => (MountAttrFlags::MOUNT_ATTR_NODEV, true),
        "dev" => (MountAttrFlags::MOUNT_ATTR_NODEV, false),
        "noexec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, true),
        "exec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, false),
        "noatime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, true),
        "atime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, false),
        "strictatime" => (MountAttrFlags::MOUNT_ATTR_STRICTATIME, true),
        "nostrictatime" => (MountAttrFlags::MOUNT_ATTR_STRICTATIME, false),
        "nodiratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, true),
        "diratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, false),
        "nosymfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, true),
        "symfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, false),
        _ => return None,
    })
}

fn propagation(option: &str) -> Option<MountPropagationFlags> {
    let (name, recursive) = match option.strip_prefix('r') {
        Some(name) => (name, MountPropagationFlags::REC),
        None => (option, MountPropagationFlags::empty()),
    };
    let kind = match name {
        "shared" => MountPropagationFlags::SHARED,
        "slave" => MountPropagationFlags::DOWNSTREAM,
        "private" => MountPropagationFlags::PRIVATE,
        "unbindable" => MountPropagationFlags::UNBINDABLE,
        _ => return None,
    };
    Some(kind | recursive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_options_of_erofs_are_separated() {
        let options =
            ["nosuid", "noexec", "exec", "noatime", "cache_strategy=disabled", "sync", "rprivate", "acl"];
        let options = options.map(str::to_owned);
        let (flags, rest) = Flags::split(&options);
        let wanted = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOATIME;
        assert_eq!(flags.attributes, wanted);
        assert_eq!(flags.propagation, Some(MountPropagationFlags::PRIVATE | MountPropagationFlags::REC));
        assert_eq!(rest, ["cache_strategy=disabled", "acl"]);
    }
}
