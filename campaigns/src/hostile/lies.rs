//! Changes of a sound image: one field, several, or a whole structure that names, repeats or swallows another one.

use std::sync::Arc;

use ferofs::check;
use ferofs::read::{Image, OpenOptions};
use ferofs_format::superblock;
use ferofs_tests::rng::Rng;

use super::crafted::Crafted;
use super::fields::{self, Field};
use super::survey::{Survey, survey};

/// Values that readers have stumbled over: ends of integer widths, and sizes whose sums or products overflow.
const EXTREMES: [u64; 18] = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FF,
    0x800,
    0xFFFF,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 53,
    1 << 60,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// A sound image to start from.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) sound: Survey,
    fields: Vec<Field>,
    kinds: Vec<&'static str>,
    /// Bytes up to the last field.
    metadata: usize,
    /// Bytes that the superblock's checksum covers.
    covered: usize,
}

impl Subject {
    /// Fails when the image is not sound.
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Result<Self, String> {
        let bytes = Arc::new(bytes);
        let image =
            Image::open_with(Box::new(Crafted::new(Arc::clone(&bytes))), Vec::new(), &OpenOptions::default());
        let image = image.map_err(|error| format!("{name}: {error}"))?;
        let fields = fields::fields(&image, &bytes);
        let mut kinds: Vec<_> = fields.iter().map(|field| field.name).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let metadata =
            fields.iter().map(|field| field.at + field.len).max().unwrap_or(superblock::OFFSET + 128);
        let (covered, sound) = (image.superblock().checksum_len(), survey(&image));
        let report = check::check(&image, &check::Options::default()).map_err(|error| error.to_string())?;
        match report.findings.first() {
            None if !sound.failed => {
                Ok(Self { name: name.to_owned(), bytes, sound, fields, kinds, metadata, covered })
            }
            finding => Err(format!("{name} is not sound to begin with: {finding:?}")),
        }
    }

    /// A changed copy, what was done to it, and whether it was one field only.
    pub(crate) fn change(&self, rng: &mut Rng) -> (String, Crafted, bool) {
        let mut image = Crafted::new(Arc::clone(&self.bytes));
        let mut what = Vec::new();
        // Half of the images lie once, so that what `check` does not report can be laid at one field's door.
        let lies = [1, 1, 1, 1, 2, 2, 3, 6][rng.below(8) as usize];
        for _ in 0..lies {
            let (name, at, bytes) = self.lie(rng);
            what.push(name);
            image.changes.push((at, bytes));
        }
        if rng.below(50) == 0 {
            image.size = self.bytes.len() as u64 + (1 << (12 + rng.below(29)));
            what.push("a long hole at the end");
        }
        self.mend(&mut image);
        (what.join(" + "), image, lies == 1)
    }

    fn lie(&self, rng: &mut Rng) -> (&'static str, usize, Vec<u8>) {
        match rng.below(20) {
            0 => {
                let at = rng.below(self.bytes.len() as u64) as usize;
                ("random bytes anywhere", at, self.random(at, rng))
            }
            1 => {
                let at = superblock::OFFSET + rng.below((self.metadata - superblock::OFFSET) as u64) as usize;
                ("random bytes in metadata", at, self.random(at, rng))
            }
            2 => self.copy(rng, "one structure over another", 32),
            3 => self.copy(rng, "a dirent or record over another", 12),
            4 => self.copy(rng, "a block over another", 4096),
            _ => {
                // Kinds of fields have equal chances, whatever their number.
                let kind = self.kinds[rng.below(self.kinds.len() as u64) as usize];
                let of_kind: Vec<_> = self.fields.iter().filter(|field| field.name == kind).collect();
                let field = *of_kind[rng.below(of_kind.len() as u64) as usize];
                let other = *of_kind[rng.below(of_kind.len() as u64) as usize];
                (kind, field.at, self.value(field, other, rng))
            }
        }
    }

    /// `len` bytes from one field's place to another's: loops, duplicates, overlaps.
    fn copy(&self, rng: &mut Rng, what: &'static str, len: usize) -> (&'static str, usize, Vec<u8>) {
        let mut place = || self.fields[rng.below(self.fields.len() as u64) as usize].at;
        let (from, to) = (place(), place());
        let len = len.min(self.bytes.len() - from).min(self.bytes.len() - to);
        (what, to, self.bytes[from..from + len].to_vec())
    }

    fn random(&self, at: usize, rng: &mut Rng) -> Vec<u8> {
        let len = (1 + rng.below(8) as usize).min(self.bytes.len() - at);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    /// Another value for `field`: extreme, a little off, one bit off, random, or that of the `other` field.
    fn value(&self, field: Field, other: Field, rng: &mut Rng) -> Vec<u8> {
        let read = |field: Field| {
            let mut bytes = [0; 8];
            bytes[..field.len].copy_from_slice(&self.bytes[field.at..][..field.len]);
            u64::from_le_bytes(bytes)
        };
        let old = read(field);
        let new = match rng.below(8) {
            0 | 1 => EXTREMES[rng.below(EXTREMES.len() as u64) as usize],
            2 => old.wrapping_add(1 + rng.below(4)),
            3 => old.wrapping_sub(1 + rng.below(4)),
            4 => rng.next_u64(),
            5 => read(other),
            6 => rng.next_u64() >> rng.below(64),
            _ => old ^ 1 << rng.below(field.len as u64 * 8),
        };
        new.to_le_bytes()[..field.len].to_vec()
    }

    /// Computes the superblock's checksum anew where the image still says that it has one.
    fn mend(&self, image: &mut Crafted) {
        let all = image.bytes();
        let mut covered = all[superblock::OFFSET..][..self.covered].to_vec();
        if covered[8] & 1 != 0 {
            superblock::write_checksum(&mut covered);
            image.changes.push((superblock::OFFSET + 4, covered[4..8].to_vec()));
        }
    }
}
