//! Mount options that are flags of the mount and not options of the file system (mount(8),
//! "file-system-independent mount options").

use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags};

/// The flags of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    /// For fsmount(2).
    pub(crate) attributes: MountAttrFlags,
    /// For mount(2), after the mount.
    pub(crate) propagation: Option<MountPropagationFlags>,
}

/// Options without effect on a read-only file system.
const NO_EFFECT: [&str; 14] = [
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
    "norelatime",
];

/// The option that sets an attribute, the one that removes it, and the attribute for fsmount(2) and
/// for mount(2).
const ATTRIBUTES: [(&str, &str, MountAttrFlags, MountFlags); 7] = [
    ("nosuid", "suid", MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
    ("nodev", "dev", MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
    ("noexec", "exec", MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
    ("noatime", "atime", MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
    (
        "strictatime",
        "nostrictatime",
        MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        MountFlags::STRICTATIME,
    ),
    ("nodiratime", "diratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    ("nosymfollow", "symfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
];

impl Flags {
    /// Splits `options` into flags and the options of EROFS and of security modules. The last of
    /// two opposite options wins.
    pub(crate) fn split(options: &[String]) -> (Self, Vec<&str>) {
        Self { attributes: MountAttrFlags::MOUNT_ATTR_RDONLY, propagation: None }.changed(options)
    }

    /// The flags of a mount with these options in the mount table (proc(5)).
    pub(crate) fn of_mount(options: &str) -> Self {
        let has = |name: &str| options.split(',').any(|option| option == name);
        let mut attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
        for (set, _, attribute, _) in ATTRIBUTES {
            attributes.set(attribute, has(set));
        }
        // The table names the others.
        attributes.set(MountAttrFlags::MOUNT_ATTR_STRICTATIME, !has("noatime") && !has("relatime"));
        Self { attributes, propagation: None }
    }

    /// As [`Self::split`], for a mount that has these flags: they stay unless an option says
    /// otherwise.
    pub(crate) fn changed(self, options: &[String]) -> (Self, Vec<&str>) {
        const ACCESS_TIMES: [MountAttrFlags; 2] =
            [MountAttrFlags::MOUNT_ATTR_NOATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME];
        let mut flags = self;
        let mut rest = Vec::new();
        for option in options {
            if let Some((attribute, on)) = attribute(option) {
                if on && ACCESS_TIMES.contains(&attribute) {
                    ACCESS_TIMES.into_iter().for_each(|other| flags.attributes.remove(other));
                }
                flags.attributes.set(attribute, on);
            } else if option == "relatime" {
                // The kernel's default.
                ACCESS_TIMES.into_iter().for_each(|other| flags.attributes.remove(other));
            } else if let Some(propagation) = propagation(option) {
                flags.propagation = Some(propagation);
            } else if !NO_EFFECT.contains(&option.as_str()) {
                rest.push(option.as_str());
            }
        }
        (flags, rest)
    }

    /// The attributes for mount(2).
    pub(crate) fn mount_flags(self) -> MountFlags {
        let mut mount_flags = MountFlags::RDONLY;
        for (.., attribute, flag) in ATTRIBUTES {
            mount_flags.set(flag, self.attributes.contains(attribute));
        }
        // Without any of them, a remount would leave the old one.
        mount_flags.set(
            MountFlags::RELATIME,
            !mount_flags.intersects(MountFlags::NOATIME | MountFlags::STRICTATIME),
        );
        mount_flags
    }

    /// The attributes for fusermount3. It sets `nosuid` and `nodev` unless it gets the opposite.
    pub(crate) fn fusermount_options(self) -> Vec<String> {
        let names = ATTRIBUTES.into_iter().filter_map(|(set, remove, attribute, _)| {
            let is_set = self.attributes.contains(attribute);
            if is_set {
                Some(set)
            } else {
                Some(remove).filter(|name| ["suid", "dev"].contains(name))
            }
        });
        names.map(str::to_owned).collect()
    }
}

fn attribute(option: &str) -> Option<(MountAttrFlags, bool)> {
    ATTRIBUTES.into_iter().find_map(|(set, remove, attribute, _)| match option {
        _ if option == set => Some((attribute, true)),
        _ if option == remove => Some((attribute, false)),
        _ => None,
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
        let options = [
            "nosuid",
            "noexec",
            "exec",
            "noatime",
            "cache_strategy=disabled",
            "sync",
            "rprivate",
            "acl",
        ];
        let options = options.map(str::to_owned);
        let (flags, rest) = Flags::split(&options);
        let wanted = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOATIME;
        assert_eq!(flags.attributes, wanted);
        assert_eq!(
            flags.propagation,
            Some(MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        );
        assert_eq!(rest, ["cache_strategy=disabled", "acl"]);
        assert_eq!(
            flags.mount_flags(),
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME
        );
        assert_eq!(flags.fusermount_options(), ["nosuid", "dev", "noatime"]);
    }

    #[test]
    fn a_remount_keeps_flags_that_no_option_changes() {
        let changed = |table: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            Flags::of_mount(table).changed(&options).0.mount_flags()
        };
        let kept = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(changed("ro,nosuid,nodev,relatime", &[]), kept | MountFlags::RELATIME);
        assert_eq!(
            changed("ro,nosuid,nodev,noatime", &["noexec"]),
            kept | MountFlags::NOATIME | MountFlags::NOEXEC
        );
        assert_eq!(
            changed("ro,nosuid,nodev,noexec,noatime", &["exec", "atime"]),
            kept | MountFlags::RELATIME
        );
        assert_eq!(changed("ro,nosuid,nodev", &["noatime"]), kept | MountFlags::NOATIME);
        assert_eq!(changed("ro,nosuid,nodev", &[]), kept | MountFlags::STRICTATIME);
        assert_eq!(changed("ro,nosuid,nodev", &["relatime"]), kept | MountFlags::RELATIME);
        assert_eq!(changed("ro,nosuid,nodev,noatime", &["relatime"]), kept | MountFlags::RELATIME);
    }
}
