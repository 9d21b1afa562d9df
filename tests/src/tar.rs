//! Writes tar archives byte by byte, including invalid ones that no program would write.

/// A header block.
#[derive(Clone, Debug)]
pub struct Header(pub [u8; 512]);

impl Header {
    /// A ustar header of `kind` with the mode 644.
    pub fn new(name: &str, kind: u8, size: u64) -> Self {
        let mut header = Self([0; 512]);
        header.put(0, name.as_bytes());
        header.put(100, b"0000644\0");
        header.put(108, b"0000000\0");
        header.put(116, b"0000000\0");
        header.put(124, format!("{size:011o}\0").as_bytes());
        header.put(136, b"00000000007\0");
        header.put(156, &[kind]);
        header.put(257, b"ustar\x0000");
        header
    }

    /// Overwrites the bytes at `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the target of a link.
    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        self.put(157, target.as_bytes());
        self
    }

    /// Overwrites the bytes at `at`.
    #[must_use]
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    /// The block with its checksum.
    pub fn bytes(mut self) -> Vec<u8> {
        self.put(148, b"        ");
        let sum: u32 = self.0.iter().map(|byte| u32::from(*byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        self.0.to_vec()
    }
}

/// A member: header, data and padding.
pub fn member(header: Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = header.bytes();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A regular file.
pub fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(Header::new(name, b'0', data.len() as u64), data)
}

/// A directory.
pub fn dir(name: &str) -> Vec<u8> {
    Header::new(name, b'5', 0).with(100, b"0000755\0").bytes()
}

/// A hard link.
pub fn hard_link(name: &str, target: &str) -> Vec<u8> {
    Header::new(name, b'1', 0).to(target).bytes()
}

/// A symbolic link.
pub fn soft_link(name: &str, target: &str) -> Vec<u8> {
    Header::new(name, b'2', 0).to(target).bytes()
}

/// A PAX header of these records, for the next member.
pub fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    pax_of(b'x', records)
}

/// A PAX header of these records: `x` for the next member, `g` for all that follow.
pub fn pax_of(kind: u8, records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let len = (rest..).find(|len| len.to_string().len() + rest == *len).unwrap_or(rest);
        data.extend_from_slice(format!("{len} {key}=").as_bytes());
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    member(Header::new("pax", kind, data.len() as u64), &data)
}

/// The members, followed by the end-of-archive blocks.
pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 1024]].concat()
}
