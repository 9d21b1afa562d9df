//! Formats POSIX ACLs as text with numeric ids, as GNU tar and bsdtar store them in archives.
//!
//! Source: Linux, `posix_acl_xattr.h`; acl(5) for the text.

const VERSION: u32 = 2;

/// The PAX record of the attribute `name`, if it holds an ACL.
pub fn record(name: &[u8], value: &[u8]) -> Option<(&'static [u8], String)> {
    let key: &[u8] = match name {
        b"system.posix_acl_access" => b"SCHILY.acl.access",
        b"system.posix_acl_default" => b"SCHILY.acl.default",
        _ => return None,
    };
    Some((key, text(value)?))
}

/// Formats an ACL as text; `None` if `value` is not an ACL.
fn text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let entries: Option<Vec<String>> = entries.iter().map(entry).collect();
    Some(entries?.join(","))
}

fn entry(&[tag, tag_high, bits, bits_high, id @ ..]: &[u8; 8]) -> Option<String> {
    let id = u32::from_le_bytes(id);
    let qualifier = match u16::from_le_bytes([tag, tag_high]) {
        0x01 => "user:".to_owned(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".to_owned(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".to_owned(),
        0x20 => "other:".to_owned(),
        _ => return None,
    };
    let bits = u16::from_le_bytes([bits, bits_high]);
    let bit = |mask, letter| if bits & mask != 0 { letter } else { '-' };
    Some(format!("{qualifier}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_written_with_numbers() {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in
            [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 5, u32::MAX), (0x10, 7, 0), (0x20, 0, 0)]
        {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        let expected = "user::rw-,user:1000:r--,group::r-x,mask::rwx,other::---";
        assert_eq!(text(&value).as_deref(), Some(expected));
        assert_eq!(text(&value[..9]), None);
        assert_eq!(text(b""), None);
    }
}
