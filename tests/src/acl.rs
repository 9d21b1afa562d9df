//! POSIX access control lists, as the bytes of the xattrs `system.posix_acl_access` and
//! `system.posix_acl_default`.
//!
//! The kernel's form (linux/posix_acl_xattr.h): a u32 version 2, then entries of u16 tag, u16
//! permissions, u32 id, all little-endian, in ascending order of tag and id.

/// The name of the ACL that controls the access to a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the ACL that new files in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The tag of an entry for a named user.
pub const USER: u16 = 0x02;
/// The tag of an entry for a named group.
pub const GROUP: u16 = 0x08;

/// One entry; the numbers are permissions (4 read, 2 write, 1 execute), after an id where there is
/// one.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The owner.
    Owner(u16),
    /// A named user.
    User(u32, u16),
    /// The owning group.
    OwningGroup(u16),
    /// A named group.
    Group(u32, u16),
    /// The largest permissions that named users and all groups get.
    Mask(u16),
    /// Everybody else.
    Other(u16),
}

/// The xattr value of `entries`, which must be in the order of [`Entry`]'s variants.
pub fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, permissions, id) = match *entry {
            Entry::Owner(permissions) => (0x01u16, permissions, u32::MAX),
            Entry::User(id, permissions) => (USER, permissions, id),
            Entry::OwningGroup(permissions) => (0x04, permissions, u32::MAX),
            Entry::Group(id, permissions) => (GROUP, permissions, id),
            Entry::Mask(permissions) => (0x10, permissions, u32::MAX),
            Entry::Other(permissions) => (0x20, permissions, u32::MAX),
        };
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}
