//! POSIX ACLs in extended attributes: checks them, changes their IDs, and converts them from and to
//! the text that GNU tar and bsdtar store.
//!
//! Source: Linux, `posix_acl_xattr.h`; acl(5) for the text.

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const VERSION: u32 = 2;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of an entry for no certain user or group.
const NO_ID: u32 = u32::MAX;

/// The PAX record of the attribute `name`, if it holds an ACL.
#[must_use]
pub fn record(name: &[u8], value: &[u8]) -> Option<(&'static [u8], String)> {
    Some((record_name(name)?, text(value)?))
}

const fn record_name(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        b"system.posix_acl_access" => Some(b"SCHILY.acl.access"),
        b"system.posix_acl_default" => Some(b"SCHILY.acl.default"),
        _ => None,
    }
}

/// An entry of an ACL. The ID is [`NO_ID`] unless the entry is for a certain user or group.
#[derive(Clone, Copy)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// The entries of an ACL; `None` if `value` has another version or is cut off.
fn entries(value: &[u8]) -> Option<impl Iterator<Item = AclEntry>> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    let entry = |&[tag, tag_high, bits, bits_high, id @ ..]: &[u8; 8]| AclEntry {
        tag: u16::from_le_bytes([tag, tag_high]),
        permissions: u16::from_le_bytes([bits, bits_high]),
        id: u32::from_le_bytes(id),
    };
    (u32::from_le_bytes(*version) == VERSION && rest.is_empty()).then(|| entries.iter().map(entry))
}

/// Formats an ACL as text; `None` if `value` is not an ACL.
fn text(value: &[u8]) -> Option<String> {
    let entries: Option<Vec<String>> = entries(value)?.map(entry_text).collect();
    Some(entries?.join(","))
}

/// Whether Linux reads `value` as an ACL: one or more entries of known kinds, with an ID where the
/// kind has one.
#[must_use]
pub fn is_valid(value: &[u8]) -> bool {
    let entries = entries(value).into_iter().flatten();
    let mut valid =
        entries.map(|entry| entry_text(entry).is_some() && !entry.lacks_id()).peekable();
    valid.peek().is_some() && valid.all(|valid| valid)
}

/// Whether the attribute `name` is for an ACL, but `value` is none that Linux reads.
#[must_use]
pub fn is_malformed(name: &[u8], value: &[u8]) -> bool {
    record_name(name).is_some() && !is_valid(value)
}

/// Whether the attribute `name` is an ACL with an entry for a user or group that has no ID in this
/// namespace.
#[must_use]
pub fn lacks_ids(name: &[u8], value: &[u8]) -> bool {
    record_name(name).is_some()
        && entries(value).is_some_and(|mut entries| entries.any(|entry| entry.lacks_id()))
}

/// Changes the IDs of the users (`true`) and groups (`false`) that the ACL in the attribute `name`
/// is for. Other attributes stay.
///
/// # Errors
/// The first error of `change`.
pub fn change_ids<E>(
    name: &[u8],
    value: &mut [u8],
    change: impl Fn(bool, u32) -> Result<u32, E>,
) -> Result<(), E> {
    let entries = value.get_mut(4..).filter(|_| record_name(name).is_some()).unwrap_or_default();
    for [tag, tag_high, _, _, id @ ..] in entries.as_chunks_mut::<8>().0 {
        let tag = u16::from_le_bytes([*tag, *tag_high]);
        if tag == USER || tag == GROUP {
            *id = change(tag == USER, u32::from_le_bytes(*id))?.to_le_bytes();
        }
    }
    Ok(())
}

impl AclEntry {
    fn lacks_id(self) -> bool {
        (self.tag == USER || self.tag == GROUP) && self.id == NO_ID
    }
}

fn entry_text(AclEntry { tag, permissions, id }: AclEntry) -> Option<String> {
    let qualifier = match tag {
        USER_OBJ => "user:".to_owned(),
        USER => format!("user:{id}"),
        GROUP_OBJ => "group:".to_owned(),
        GROUP => format!("group:{id}"),
        MASK => "mask:".to_owned(),
        OTHER => "other:".to_owned(),
        _ => return None,
    };
    let bit = |mask, letter| if permissions & mask != 0 { letter } else { '-' };
    Some(format!("{qualifier}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')))
}

/// The attribute for the ACL of a PAX record, as name and value. The value is empty if the
/// permissions of the file say the same.
///
/// `None` if the text is not an ACL that Linux accepts, or names a user or group without its
/// number: names can mean another number on each machine.
pub fn attribute(key: &[u8], text: &[u8]) -> Option<(&'static [u8], Vec<u8>)> {
    let name: &[u8] = match key {
        b"SCHILY.acl.access" => b"system.posix_acl_access",
        b"SCHILY.acl.default" => b"system.posix_acl_default",
        _ => return None,
    };
    let lines = text.split(|byte| matches!(byte, b',' | b'\n')).map(<[u8]>::trim_ascii);
    let entries: Option<Vec<_>> = lines.filter(|line| !line.is_empty()).map(parse_entry).collect();
    let mut entries = entries?;
    entries.sort_unstable();
    let count = |wanted| entries.iter().filter(|(tag, ..)| *tag == wanted).count();
    let is_named = count(USER) > 0 || count(GROUP) > 0;
    let is_complete = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
    let is_same = |((tag, id, _), next): (&(u16, u32, u16), &(u16, u32, u16))| {
        (*tag, *id) == (next.0, next.1)
    };
    let is_twice = entries.iter().zip(entries.iter().skip(1)).any(is_same);
    if !is_complete || is_twice || (is_named && count(MASK) == 0) {
        return None;
    }
    if entries.len() == 3 && key == b"SCHILY.acl.access" {
        return Some((name, Vec::new()));
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    Some((name, value))
}

/// Parses an entry to tag, id and permissions. star and bsdtar add the number to a name:
/// `user:daemon:rwx:1`.
fn parse_entry(text: &[u8]) -> Option<(u16, u32, u16)> {
    let text = core::str::from_utf8(text).ok()?;
    // getfacl(1) adds such comments.
    let text = text.split('#').next().unwrap_or_default().trim();
    let mut fields = text.strip_prefix("default:").unwrap_or(text).split(':');
    let (kind, who, bits) = (fields.next()?, fields.next()?, fields.next()?);
    let number = fields.next();
    if fields.next().is_some() {
        return None;
    }
    let (tag, id) = match (kind, who) {
        ("user", "") => (USER_OBJ, NO_ID),
        ("group", "") => (GROUP_OBJ, NO_ID),
        ("mask", "") => (MASK, NO_ID),
        ("other", "") => (OTHER, NO_ID),
        ("user" | "group", who) => {
            let id = who.parse().ok().or_else(|| number?.parse().ok()).filter(|id| *id != NO_ID)?;
            (if kind == "user" { USER } else { GROUP }, id)
        }
        _ => return None,
    };
    let mut value = 0;
    for letter in bits.bytes() {
        value |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return None,
        };
    }
    Some((tag, id, value))
}
