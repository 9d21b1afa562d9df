//! The headers of an entry: a ustar block, and before it a PAX header for values that do not fit
//! into the block.
//!
//! Source: POSIX.1, pax, "ustar Interchange Format" and "pax Extended Header".

use ferofs_format::inode::Timestamp;

use ferofs_format::units::to_u64;
use ferofs_read::Inode;

/// Bytes of a block, tar's unit.
pub(super) const BLOCK: usize = 512;

/// The largest value of a field with 7 octal digits.
const MAX_ID: u64 = 0o7_777_777;
/// The largest value of a field with 11 octal digits.
const MAX_LONG: u64 = 0o77_777_777_777;
/// Bytes of the block's name field.
const NAME: usize = 100;

/// The type flag of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    File = b'0',
    Link = b'1',
    Symlink = b'2',
    CharDevice = b'3',
    BlockDevice = b'4',
    Directory = b'5',
    Fifo = b'6',
    /// PAX records for the next entry.
    Records = b'x',
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Bytes after the header.
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
    /// Target of a link.
    pub(super) link: Vec<u8>,
    /// Major and minor number.
    pub(super) device: (u32, u32),
    /// More PAX records.
    pub(super) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Header {
    /// An entry without content.
    pub(super) fn new(path: &[u8], kind: Kind, inode: &Inode) -> Self {
        let disk = inode.on_disk();
        Self {
            path: path.to_vec(),
            kind,
            permissions: disk.permissions,
            uid: disk.uid,
            gid: disk.gid,
            size: 0,
            mtime: disk.mtime,
            link: Vec::new(),
            device: (0, 0),
            records: Vec::new(),
        }
    }

    /// All blocks of the header.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut records = Vec::new();
        if self.path.len() > NAME {
            put_record(&mut records, b"path", &self.path);
        }
        if self.link.len() > NAME {
            put_record(&mut records, b"linkpath", &self.link);
        }
        for (key, id) in [(&b"uid"[..], self.uid), (b"gid", self.gid)] {
            if u64::from(id) > MAX_ID {
                put_record(&mut records, key, id.to_string().as_bytes());
            }
        }
        if self.size > MAX_LONG {
            put_record(&mut records, b"size", self.size.to_string().as_bytes());
        }
        if self.mtime.nanos != 0 || plain_secs(self.mtime).is_none() {
            put_record(&mut records, b"mtime", decimal(self.mtime).as_bytes());
        }
        for (key, value) in &self.records {
            put_record(&mut records, key, value);
        }
        let mut bytes = Vec::with_capacity(BLOCK);
        if !records.is_empty() {
            let mut path = b"PaxHeaders/".to_vec();
            let name = self.path.strip_suffix(b"/").unwrap_or(&self.path);
            path.extend(name.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
            path.truncate(NAME);
            let header = Self {
                path,
                kind: Kind::Records,
                permissions: 0o644,
                uid: 0,
                gid: 0,
                size: to_u64(records.len()),
                mtime: Timestamp::default(),
                link: Vec::new(),
                device: (0, 0),
                records: Vec::new(),
            };
            bytes.extend(header.block());
            bytes.extend(&records);
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        }
        bytes.extend(self.block());
        bytes
    }

    #[expect(clippy::as_conversions, reason = "a kind is a byte")]
    fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        put(&mut block[..NAME], &self.path);
        put_octal(&mut block[100..108], self.permissions.into());
        put_octal(&mut block[108..116], self.uid.into());
        put_octal(&mut block[116..124], self.gid.into());
        put_octal(&mut block[124..136], self.size);
        put_octal(&mut block[136..148], plain_secs(self.mtime).unwrap_or(0));
        // The checksum counts its own field as blanks.
        block[148..156].fill(b' ');
        block[156] = self.kind as u8;
        put(&mut block[157..257], &self.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        if matches!(self.kind, Kind::CharDevice | Kind::BlockDevice) {
            put_octal(&mut block[329..337], self.device.0.into());
            put_octal(&mut block[337..345], self.device.1.into());
        }
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        put_octal(&mut block[148..155], sum);
        block
    }
}

/// The PAX key of an attribute. GNU tar escapes `=`, which ends a key, and `%` itself.
pub(super) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            byte => key.push(*byte),
        }
    }
    key
}

/// Adds `LEN KEY=VALUE\n`, where the length counts its own digits.
fn put_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let others = key.len().saturating_add(value.len()).saturating_add(3);
    let mut len = others.saturating_add(digits(others));
    if digits(len) > digits(others) {
        len = others.saturating_add(digits(len));
    }
    records.extend(len.to_string().bytes());
    records.push(b' ');
    records.extend(key);
    records.push(b'=');
    records.extend(value);
    records.push(b'\n');
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a number has at most 20 digits"
)]
fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// The seconds, if the block's field can hold them.
fn plain_secs(time: Timestamp) -> Option<u64> {
    u64::try_from(time.secs).ok().filter(|secs| *secs <= MAX_LONG)
}

/// A time as a decimal number. Nanoseconds are added to the seconds, also before 1970.
fn decimal(Timestamp { secs, nanos }: Timestamp) -> String {
    let nanos = nanos.min(999_999_999);
    let text = if secs < 0 && nanos > 0 {
        format!(
            "-{}.{:09}",
            secs.saturating_add(1).unsigned_abs(),
            1_000_000_000_u32.saturating_sub(nanos)
        )
    } else {
        format!("{secs}.{nanos:09}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn put(field: &mut [u8], bytes: &[u8]) {
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

/// Writes octal digits and a NUL. A number that does not fit becomes 0: a PAX record has it.
fn put_octal(field: &mut [u8], number: u64) {
    let Some((end, digits)) = field.split_last_mut() else { return };
    let width = digits.len();
    let text = format!("{number:0width$o}");
    let text = if text.len() > width { "0".repeat(width) } else { text };
    digits.copy_from_slice(text.as_bytes());
    *end = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_itself() {
        for len in 0..2000 {
            let mut records = Vec::new();
            put_record(&mut records, b"k", &vec![b'v'; len]);
            let claimed: usize =
                std::str::from_utf8(&records).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(claimed, records.len());
        }
    }

    #[test]
    fn times_are_decimals() {
        let time = |secs, nanos| decimal(Timestamp { secs, nanos });
        assert_eq!(time(1, 500_000_000), "1.5");
        assert_eq!(time(10, 0), "10");
        assert_eq!(time(-2, 1), "-1.999999999");
        assert_eq!(time(-1, 500_000_000), "-0.5");
        assert_eq!(time(-3, 0), "-3");
        assert_eq!(time(1 << 40, 7), "1099511627776.000000007");
    }

    #[test]
    fn keys_are_escaped() {
        assert_eq!(xattr_key(b"user.a=b%"), b"SCHILY.xattr.user.a%3Db%25");
    }
}
